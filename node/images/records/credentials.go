package records

import (
	"cmp"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// maxMatched is the number of secrets of an image up to which a secret is recorded that has not pulled it, as in
	// kubelet.
	maxMatched = 100
	// maxSecrets is the number of secrets, and of service accounts, that are recorded of an image. In kubelet there is
	// no limit.
	maxSecrets = 1000
)

// Credential identifies the credential of a pull, without its content. If both fields are nil, it is one of the node,
// or none was necessary: all pods may use the image.
type Credential struct {
	// Secret is the pull secret with the credential.
	Secret *Secret
	// ServiceAccount is the service account for whose token a credential provider has returned the credential.
	ServiceAccount *ServiceAccount
}

// Secret is a pull secret.
type Secret struct {
	UID             types.UID
	Namespace, Name string
	// Hash identifies the content (kubelet's credentialHash). Secrets with the same hash have the same rights. An empty
	// hash is equal to none.
	Hash string
}

// ServiceAccount is a service account.
type ServiceAccount struct {
	UID             types.UID
	Namespace, Name string
}

// allows returns who may use an image that was pulled with the credential.
func (c *Credential) allows() allowed {
	switch {
	case c.Secret != nil:
		return allowed{Secrets: []secretID{secretID(*c.Secret)}}
	case c.ServiceAccount != nil:
		return allowed{ServiceAccounts: []accountID{accountID(*c.ServiceAccount)}}
	default:
		return allowed{NodePods: true}
	}
}

// empty reports whether nobody is allowed.
func (a *allowed) empty() bool {
	return !a.NodePods && len(a.Secrets) == 0 && len(a.ServiceAccounts) == 0
}

// match reports whether one of the credentials of a pod may use the image. record is a secret among them that is to be
// recorded: it has the content of a recorded one, or is a recorded one with new content.
func (a *allowed) match(list []Credential) (ok bool, record *Secret) {
	for i := range list {
		switch c := &list[i]; {
		case c.Secret != nil:
			match, same := a.matchSecret(c.Secret)
			if match && same {
				return true, nil
			}
			if match && record == nil {
				ok, record = true, c.Secret
			}
		case c.ServiceAccount != nil && slices.Contains(a.ServiceAccounts, accountID(*c.ServiceAccount)):
			return true, nil
		}
	}
	if record != nil && len(a.Secrets) >= maxMatched && !slices.ContainsFunc(a.Secrets, secretID(*record).sameSecret) {
		record = nil
	}
	return ok, record
}

// matchSecret reports whether a secret may use the image, and whether it is recorded as it is.
func (a *allowed) matchSecret(s *Secret) (ok, same bool) {
	for _, r := range a.Secrets {
		if r == secretID(*s) {
			return true, true
		}
		ok = ok || r.Hash != "" && r.Hash == s.Hash || r.sameSecret(secretID(*s))
	}
	return ok, false
}

func (s secretID) sameSecret(o secretID) bool {
	return s.UID == o.UID && s.Namespace == o.Namespace && s.Name == o.Name
}

// merge returns the record with more credentials for a name, or r itself if that changes nothing. It does not change r.
// If r is nil, the record is new.
func (r *recordFile) merge(ref, name string, add allowed) *recordFile {
	if r == nil {
		r := &recordFile{LastUpdatedTime: now(), ImageRef: ref}
		if !add.empty() {
			r.Credentials = map[string]allowed{name: add}
		}
		return r
	}
	have := r.Credentials[name]
	merged := have
	switch {
	case have.NodePods:
	case add.NodePods:
		merged = allowed{NodePods: true}
	default:
		merged.Secrets = mergeIDs(have.Secrets, add.Secrets, secretID.sameSecret, func(a, b secretID) int {
			return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
		})
		merged.ServiceAccounts = mergeIDs(have.ServiceAccounts, add.ServiceAccounts,
			func(a, b accountID) bool { return a == b }, func(a, b accountID) int {
				return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name),
					cmp.Compare(a.UID, b.UID))
			})
	}
	if merged.NodePods == have.NodePods && slices.Equal(merged.Secrets, have.Secrets) &&
		slices.Equal(merged.ServiceAccounts, have.ServiceAccounts) {
		return r
	}
	out := *r
	out.LastUpdatedTime = now()
	out.Credentials = maps.Clone(r.Credentials)
	if out.Credentials == nil {
		out.Credentials = map[string]allowed{}
	}
	out.Credentials[name] = merged
	return &out
}

// mergeIDs returns the list with more IDs, sorted. An ID replaces the same one.
func mergeIDs[T comparable](have, add []T, same func(a, b T) bool, order func(a, b T) int) []T {
	out := have
	for _, id := range add {
		if slices.Contains(out, id) {
			continue
		}
		out = slices.DeleteFunc(slices.Clone(out), func(o T) bool { return same(o, id) })
		if n := len(out) - maxSecrets + 1; n > 0 {
			out = slices.Delete(out, 0, n)
		}
		out = append(out, id)
		slices.SortFunc(out, order)
	}
	return out
}
