package credentials

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/safefile"
)

// Secrets is the source of the pull secrets of pods: [Request].Secrets. Secrets of other types have no credentials. A
// secret that cannot be read leaves the others; the error names it. The bounds are 10,000 credentials that are read and
// 100 logins that are returned.
type Secrets struct{}

// Credentials implements [Source].
func (Secrets) Credentials(_ context.Context, req Request) ([]Credential, error) {
	ring, err := newKeyring(req.Secrets)
	return ring.lookup(req.Image), err
}

// newKeyring reads pull secrets. The error names the secrets that cannot be read; the keyring then has the others.
func newKeyring(secrets []v1.Secret) (keyring, error) {
	var ring keyring
	var errs []error
	seen := map[[2]string]bool{} // a pod can name a secret any number of times
	for i := range secrets {
		s := &secrets[i]
		name := [2]string{s.Namespace, s.Name}
		if seen[name] && name[1] != "" {
			continue
		}
		seen[name] = true
		auths, err := readPullSecret(s)
		if err == nil {
			err = ring.add(auths, &Secret{UID: s.UID, Namespace: s.Namespace, Name: s.Name}, nil)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("pull secret %s/%s: %w", s.Namespace, s.Name, err))
		}
		if len(ring) == maxCredentials {
			break
		}
	}
	ring.sort()
	return ring, errors.Join(errs...)
}

// maxDockerConfig is the limit for a docker configuration of the node, in bytes: that of a secret.
const maxDockerConfig = 1 << 20

// NodeConfig returns the source of the credentials of the node: a config.json of docker, which is read for each
// request. Helpers (credsStore, credHelpers) are not called. A file that does not exist has no credentials, and neither
// does an empty path. An error is a [NodeError].
func NodeConfig(path string) Source {
	reader := &safefile.Reader{}
	return SourceFunc(func(ctx context.Context, req Request) ([]Credential, error) {
		ring, err := nodeKeyring(ctx, reader, path)
		if err != nil {
			err = &NodeError{fmt.Errorf("credentials of the node in %s: %w", path, err)}
		}
		return ring.lookup(req.Image), err
	})
}

func nodeKeyring(ctx context.Context, r *safefile.Reader, path string) (keyring, error) {
	if path == "" {
		return nil, nil
	}
	data, err := r.ReadFile(ctx, path, maxDockerConfig)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	auths, err := readDockerConfig(data)
	if err != nil {
		return nil, err
	}
	var ring keyring
	err = ring.add(auths, nil, nil)
	ring.sort()
	return ring, err
}
