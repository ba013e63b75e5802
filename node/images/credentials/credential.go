package credentials

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Credential is a credential for a registry, and where it comes from. It is read-only, and its text has no password.
type Credential struct {
	// Username and Password may be empty.
	Username, Password string
	// Email is that of a docker configuration. Registries do not receive it, but [Credential.Hash] includes it.
	Email string
	// Secret is the pull secret with the credential. ServiceAccount is the account for which a plugin returned it. At
	// most one of them is set. If both are nil, the credential is the node's, and all its pods may use it.
	Secret         *Secret
	ServiceAccount *ServiceAccount
}

// Secret identifies a pull secret.
type Secret struct {
	UID             types.UID
	Namespace, Name string
}

// ServiceAccount identifies a service account.
type ServiceAccount struct {
	UID             types.UID
	Namespace, Name string
}

// Hash returns the hash of the credential as kubelet's pull records have it (credentialHash of an ImagePullSecret):
// SHA-256, in hexadecimal. It does not depend on the secret.
func (c Credential) Hash() string {
	// The order and the names of the fields are those of docker's AuthConfig.
	data, err := json.Marshal(struct {
		Username string `json:"username,omitempty"`
		Password string `json:"password,omitempty"`
		Email    string `json:"email,omitempty"`
	}{c.Username, c.Password, c.Email})
	if err != nil { // cannot happen
		return ""
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// String returns the user and the source, without the password.
func (c Credential) String() string {
	switch {
	case c.Secret != nil:
		return fmt.Sprintf("%.100q of secret %s/%s", c.Username, c.Secret.Namespace, c.Secret.Name)
	case c.ServiceAccount != nil:
		return fmt.Sprintf("%.100q of service account %s/%s", c.Username, c.ServiceAccount.Namespace,
			c.ServiceAccount.Name)
	default:
		return fmt.Sprintf("%.100q of the node", c.Username)
	}
}

// GoString is String: %#v does not print the password.
func (c Credential) GoString() string { return c.String() }

// key identifies a credential with its source.
func (c *Credential) key() credentialKey {
	k := credentialKey{login: c.login(), email: c.Email}
	if c.Secret != nil {
		k.secret = *c.Secret
	}
	if c.ServiceAccount != nil {
		k.account = *c.ServiceAccount
	}
	return k
}

func (c *Credential) login() login { return login{c.Username, c.Password} }

// login is what a registry receives.
type login struct{ username, password string }

type credentialKey struct {
	login   login
	email   string
	secret  Secret
	account ServiceAccount
}

// Request is a request for the credentials of one image.
type Request struct {
	// Image is the full repository without tag and digest, such as "docker.io/library/busybox".
	Image string
	// Pod is the pod that needs the image. It is read-only, and may be nil if no pod does.
	Pod *v1.Pod
	// Secrets are the pull secrets of the pod and of its service account. They are read-only.
	Secrets []v1.Secret
}

// Source finds credentials.
type Source interface {
	// Credentials returns the credentials for the image, in the order in which they are to be tried. Two of them may
	// have the same username and password if they come from different sources, see [Distinct].
	//
	// The error joins the problems with what could not be read; the credentials are valid all the same. [Split]
	// divides it into what the owner of the pod may read and the rest. No error contains a password. Credentials
	// may be called concurrently.
	Credentials(ctx context.Context, req Request) ([]Credential, error)
}

// SourceFunc is a function that is a [Source].
type SourceFunc func(ctx context.Context, req Request) ([]Credential, error)

// Credentials calls the function.
func (f SourceFunc) Credentials(ctx context.Context, req Request) ([]Credential, error) {
	return f(ctx, req)
}

// Join returns a source with the credentials of all sources, in order. Kubelet's order is: pull secrets, the node's
// configuration, plugins. A credential that differs from an earlier one neither in its login nor in its source is left
// out. nil sources have none.
func Join(sources ...Source) Source {
	return SourceFunc(func(ctx context.Context, req Request) ([]Credential, error) {
		var all []Credential
		var errs []error
		seen := map[credentialKey]bool{}
		for _, s := range sources {
			if s == nil {
				continue
			}
			list, err := s.Credentials(ctx, req)
			errs = append(errs, err)
			for i := range list {
				if k := list[i].key(); !seen[k] {
					seen[k] = true
					all = append(all, list[i])
				}
			}
		}
		return all, errors.Join(errs...)
	})
}

// Distinct returns the first credential of each username and password. A pull tries these; the others have a
// meaning only where the right to an image is compared with a record.
func Distinct(list []Credential) []Credential {
	var out []Credential
	seen := map[login]bool{}
	for i := range list {
		if l := list[i].login(); !seen[l] {
			seen[l] = true
			out = append(out, list[i])
		}
	}
	return out
}

// NodeError is a problem with the configuration of the node. Its text may name files of the node: it belongs into the
// log of the agent, and not into the status of a pod.
type NodeError struct{ Err error }

// Error returns the text of Err.
func (e *NodeError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *NodeError) Unwrap() error { return e.Err }

// Split divides the error of a [Source]: pod is for the status and the events of the pod, node has each [NodeError].
func Split(err error) (pod, node error) {
	if ne := (*NodeError)(nil); !errors.As(err, &ne) {
		return err, nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return nil, err
	}
	var pods, nodes []error
	for _, e := range joined.Unwrap() {
		p, n := Split(e)
		pods, nodes = append(pods, p), append(nodes, n)
	}
	return errors.Join(pods...), errors.Join(nodes...)
}
