package cri

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"path"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/internal/safefile"
)

// keyring has the credentials for images. Its entries are in the order in which they are
// tried: the most specific location first, and for equal locations the earlier secret.
type keyring []keyringEntry

// keyringEntry is a credential and the location that it is for: a host, which may have
// wildcards in its labels and a port, and the prefix of a path.
type keyringEntry struct {
	location string
	auth     *criv1.AuthConfig
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
	// maxTries is the number of credentials that are tried for one pull.
	maxTries = 100
)

// newKeyring reads pull secrets, and ignores secrets of other types. The error names the
// secrets that cannot be read; the keyring then has the others.
func newKeyring(secrets []v1.Secret) (keyring, error) {
	var ring keyring
	var errs []error
	// A pod can name a secret any number of times. podsync reads each once; a function of an
	// embedder may return it as often.
	seen := map[[2]string]bool{}
	for i := range secrets {
		name := [2]string{secrets[i].Namespace, secrets[i].Name}
		if seen[name] && name[1] != "" {
			continue
		}
		seen[name] = true
		auths, err := readPullSecret(&secrets[i])
		if err == nil {
			err = ring.add(auths)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("pull secret %s/%s: %w", secrets[i].Namespace, secrets[i].Name, err))
		}
		if len(ring) == maxCredentials {
			break
		}
	}
	ring.sort()
	return ring, errors.Join(errs...)
}

// maxDockerConfig is the limit for [Options].DockerConfig in bytes: that of a secret.
const maxDockerConfig = 1 << 20

// nodeKeyring reads [Options].DockerConfig. A file that does not exist has no credentials.
func nodeKeyring(path string) (keyring, error) {
	if path == "" {
		return nil, nil
	}
	data, err := safefile.ReadFile(path, maxDockerConfig)
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
	err = ring.add(auths)
	ring.sort()
	return ring, err
}

// errTooMany means that there are more than maxCredentials.
var errTooMany = fmt.Errorf("there are more than %d credentials", maxCredentials)

// add adds the entries of a configuration. The error names those that cannot be used.
func (k *keyring) add(auths map[string]*dockerEntry) error {
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
		*k = append(*k, keyringEntry{location: location, auth: auths[where].auth()})
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

// errNotDocker hides an error of JSON, whose text may contain the secret.
var errNotDocker = errors.New("not a docker configuration")

// dockerEntry is a credential in docker's configuration files.
type dockerEntry struct {
	Username string `json:"username"`
	Password string `json:"password"`
	// Auth is base64 of "username:password". It takes precedence over both.
	Auth string `json:"auth"`
}

func (e *dockerEntry) auth() *criv1.AuthConfig {
	return &criv1.AuthConfig{Username: e.Username, Password: e.Password}
}

// readPullSecret returns the entries of a pull secret, nil for any other secret.
func readPullSecret(s *v1.Secret) (map[string]*dockerEntry, error) {
	switch s.Type {
	case v1.SecretTypeDockerConfigJson:
		if data := s.Data[v1.DockerConfigJsonKey]; len(data) > 0 {
			return readDockerConfig(data)
		}
	case v1.SecretTypeDockercfg:
		if data := s.Data[v1.DockerConfigKey]; len(data) > 0 {
			var entries map[string]*dockerEntry
			if err := json.Unmarshal(data, &entries); err != nil {
				return nil, errNotDocker
			}
			return decodeAuths(entries)
		}
	}
	return nil, nil
}

// readDockerConfig returns the entries of a config.json of docker.
func readDockerConfig(data []byte) (map[string]*dockerEntry, error) {
	var file struct {
		Auths map[string]*dockerEntry `json:"auths"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		return nil, errNotDocker
	}
	return decodeAuths(file.Auths)
}

// decodeAuths decodes the field auth of the entries, and drops empty entries.
func decodeAuths(entries map[string]*dockerEntry) (map[string]*dockerEntry, error) {
	for where, e := range entries {
		if e == nil {
			delete(entries, where)
			continue
		}
		if e.Auth == "" {
			continue
		}
		// Both padded and unpadded values are in use.
		plain, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(strings.TrimSpace(e.Auth), "="))
		if err != nil {
			return nil, errNotDocker
		}
		user, password, ok := strings.Cut(string(plain), ":")
		if !ok {
			return nil, errNotDocker
		}
		e.Username, e.Password = user, password
	}
	return entries, nil
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

// lookup returns the credentials for a repository, "domain/path" in full, in the order
// in which they are tried.
func (k keyring) lookup(repository string) []*criv1.AuthConfig {
	var found, hub []*criv1.AuthConfig
	for _, e := range k {
		if locationCovers(e.location, repository) {
			found = append(found, e.auth)
		}
		if e.location == hubLocation {
			hub = append(hub, e.auth)
		}
	}
	if len(found) == 0 && strings.HasPrefix(repository, hubDomain+"/") {
		return hub
	}
	return found
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
