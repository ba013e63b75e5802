package credentials

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"path"
	"slices"
	"strings"
)

// keyring has credentials for images. Its entries are in the order in which they are
// tried: the most specific location first, and for equal locations the earlier source.
type keyring []keyringEntry

// keyringEntry is a credential and the location that it is for: a host, which may have
// wildcards in its labels and a port, and the prefix of a path.
type keyringEntry struct {
	location   string
	credential Credential
}

// The Docker Hub, as image names and as docker's configuration files call it.
const (
	hubDomain   = "docker.io"
	hubLocation = "index.docker.io"
)

const (
	// maxCredentials is the number of credentials of a keyring. A secret of 1 MiB has room for 40,000, and
	// a pod for any number of secrets.
	maxCredentials = 10_000
	// maxTries is the number of different logins that a source returns for one image.
	maxTries = 100
)

// errTooMany means that there are more than maxCredentials.
var errTooMany = fmt.Errorf("there are more than %d credentials", maxCredentials)

// add adds the entries of a configuration with their source. The error names those that cannot be used.
func (k *keyring) add(auths map[string]*dockerEntry, secret *Secret, account *ServiceAccount) error {
	var errs []error
	for _, where := range slices.Sorted(maps.Keys(auths)) {
		location, ok := locationOf(where)
		if !ok {
			if len(errs) < maxTries {
				errs = append(errs, fmt.Errorf("%.100q is not a registry", where))
			}
			continue
		}
		if len(*k) == maxCredentials {
			errs = append(errs, errTooMany)
			break
		}
		e := auths[where]
		*k = append(*k, keyringEntry{location, Credential{Username: e.Username, Password: e.Password, Email: e.Email,
			Secret: secret, ServiceAccount: account}})
	}
	return errors.Join(errs...)
}

// sort puts the entries in the order in which they are tried, when all were added. Descending order
// puts a longer path before its prefixes.
func (k keyring) sort() {
	slices.SortStableFunc(k, func(a, b keyringEntry) int {
		return strings.Compare(b.location, a.location)
	})
}

// lookup returns the different credentials for a repository, "domain/path" in full, in the order
// in which they are tried, with maxTries different logins at most.
func (k keyring) lookup(repository string) []Credential {
	var found, hub []Credential
	for i := range k {
		e := &k[i]
		if locationCovers(e.location, repository) {
			found = append(found, e.credential)
		}
		if e.location == hubLocation {
			hub = append(hub, e.credential)
		}
	}
	if len(found) == 0 && strings.HasPrefix(repository, hubDomain+"/") {
		found = hub
	}
	logins, seen := map[login]bool{}, map[credentialKey]bool{}
	return slices.DeleteFunc(found, func(c Credential) bool {
		if l := c.login(); !logins[l] {
			if len(logins) == maxTries {
				return true
			}
			logins[l] = true
		}
		again := seen[c.key()]
		seen[c.key()] = true
		return again
	})
}

// locationOf returns "host[:port][/path]" for the key of an entry, which may be a URL.
// The API version that docker puts at the beginning of the path is ignored.
func locationOf(where string) (string, bool) {
	if !strings.HasPrefix(where, "https://") && !strings.HasPrefix(where, "http://") {
		where = "https://" + where
	}
	u, err := url.Parse(where)
	if err != nil || u.Host == "" {
		return "", false
	}
	p := u.Path
	for _, version := range []string{"/v1/", "/v2/"} {
		if rest, ok := strings.CutPrefix(p, version); ok {
			p = "/" + rest
			break
		}
	}
	if p == "/" {
		p = ""
	}
	return u.Host + p, true
}

// patternOf returns the location of an entry of matchImages, which is no URL: nothing is taken from it.
func patternOf(glob string) (string, error) {
	u, err := url.Parse("https://" + glob)
	if err != nil {
		return "", errors.Unwrap(err) // without the URL, which is in the message already
	}
	return u.Host + u.Path, nil
}

// locationCovers reports whether the location matches the repository's host, label by
// label with wildcards, and is a prefix of its path.
func locationCovers(location, repository string) bool {
	host, dir, _ := strings.Cut(location, "/")
	domain, name, _ := strings.Cut(repository, "/")
	if !strings.HasPrefix(name, dir) {
		return false
	}
	host, port := splitPort(host)
	domain, wantPort := splitPort(domain)
	patterns, labels := strings.Split(host, "."), strings.Split(domain, ".")
	if port != wantPort || len(patterns) != len(labels) {
		return false
	}
	for i := range patterns {
		if patterns[i] == labels[i] {
			continue // also names that are no valid pattern, such as "[::1]"
		}
		if ok, err := path.Match(patterns[i], labels[i]); err != nil || !ok {
			return false
		}
	}
	return true
}

func splitPort(hostport string) (host, port string) {
	if i := strings.LastIndexByte(hostport, ':'); i >= 0 && !strings.HasSuffix(hostport, "]") {
		return hostport[:i], hostport[i+1:]
	}
	return hostport, ""
}
