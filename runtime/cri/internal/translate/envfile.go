package translate

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/regular"
)

// maxEnvFile is the limit for a file with variables, in bytes: that of a config map.
const maxEnvFile = 1 << 20

// fileKey returns the value of a key in a file of a volume (KEP-3721), or false if the
// reference is optional, and the file or the key does not exist. The containers of the pod
// write the volume, so no link leads out of it, and no error contains what is in the file.
func fileKey(in *Container, ref *v1.FileKeySelector) (string, bool, error) {
	volume, ok := in.Volumes[ref.VolumeName]
	if !ok {
		return "", false, fmt.Errorf("cannot find the volume %q referenced by FileKeyRef", ref.VolumeName)
	}
	name := strings.TrimPrefix(path.Clean("/"+ref.Path), "/")
	content, err := regular.ReadFileIn(volume.HostPath, name, maxEnvFile)
	switch {
	case errors.Is(err, fs.ErrNotExist) && isTrue(ref.Optional):
		return "", false, nil
	case errors.Is(err, fs.ErrNotExist):
		return "", false, fmt.Errorf("env file %q in volume %q does not exist", ref.Path, ref.VolumeName)
	case err != nil:
		return "", false, &hiddenError{fmt.Sprintf("couldn't read env file %q in volume %q", ref.Path, ref.VolumeName), err}
	}
	value, err := envFileValue(string(content), ref.Key)
	if err != nil {
		return "", false, fmt.Errorf("couldn't parse env file %q in volume %q: %w", ref.Path, ref.VolumeName, err)
	}
	if value == "" && !isTrue(ref.Optional) {
		return "", false, fmt.Errorf("environment variable key %q not found in file %q", ref.Key, ref.Path)
	}
	return value, value != "", nil
}

// envFileValue returns the value of the key, "" if there is none. Each variable is
// NAME='VALUE' with any text but quotes in the value, also line breaks. A comment begins
// with # at the start of a line or after a value. As in a shell, a name whose = is
// followed by a blank has no value. The format is the part of a shell's that kubelet
// accepts (kubelet: util/env). The first definition counts.
func envFileValue(text, key string) (string, error) {
	text = strings.ReplaceAll(text, "\r\n", "\n")
	for rest := text; rest != ""; {
		fail := func(what string) error {
			return fmt.Errorf("invalid environment variable format at line %d: %s", 1+strings.Count(text[:len(text)-len(rest)], "\n"), what)
		}
		line, after, _ := strings.Cut(rest, "\n")
		line = strings.TrimLeft(line, " \t")
		if line == "" || line[0] == '#' {
			rest = after
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		switch {
		case !ok:
			return "", fail("missing '='")
		case name == "":
			return "", fail("empty variable name")
		case strings.TrimRight(name, " \t") != name:
			return "", fail("whitespace before '=' is not allowed")
		case value != strings.TrimLeft(value, " \t"):
			if name == key {
				return "", nil
			}
			rest = after
			continue
		case !strings.HasPrefix(value, "'"):
			return "", fail("value must be enclosed in single quotes")
		}
		value, after, ok = strings.Cut(rest[strings.Index(rest, "='")+2:], "'")
		if !ok {
			return "", fail("unclosed single quote")
		}
		line, after, _ = strings.Cut(after, "\n")
		if line = strings.TrimLeft(line, " \t"); line != "" && line[0] != '#' {
			return "", fail("unexpected content after closing quote")
		}
		if name == key {
			return value, nil
		}
		rest = after
	}
	return "", nil
}
