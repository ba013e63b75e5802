package credentials

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// errNotDocker hides an error of JSON, whose text may contain the secret.
var errNotDocker = errors.New("not a docker configuration")

// dockerEntry is a credential in docker's configuration files.
type dockerEntry struct {
	Username string `json:"username"`
	Password string `json:"password"`
	Email    string `json:"email"`
	// Auth is base64 of "username:password". It takes precedence over both.
	Auth string `json:"auth"`
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
			return readDockercfg(data)
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

// readDockercfg returns the entries of a .dockercfg, the older form.
func readDockercfg(data []byte) (map[string]*dockerEntry, error) {
	var entries map[string]*dockerEntry
	if err := json.Unmarshal(data, &entries); err != nil {
		return nil, errNotDocker
	}
	return decodeAuths(entries)
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
