package translate

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/safefile"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

const (
	// maxEnvFile is the limit for a file with variables, in bytes: that of a config map.
	maxEnvFile = 1 << 20
	// maxEnvFiles is the limit for all files of one container.
	maxEnvFiles = 16 << 20
)

// envFiles has the files with variables of one container. Each of them is read once, so that
// variables from the same file are consistent.
type envFiles struct {
	byName map[envFileName]*envFile
	size   int
}

// envFileName is a file in a volume.
type envFileName struct{ volume, path string }

// envFile is a file as far as its format is valid.
type envFile struct {
	values map[string]string
	// readErr means that there are no values, parseErr that what follows them is not valid.
	readErr, parseErr error
}

// get returns the file in a volume.
func (f *envFiles) get(volume runtime.Volume, ref *v1.FileKeySelector) (*envFile, error) {
	name := envFileName{ref.VolumeName, strings.TrimPrefix(path.Clean("/"+ref.Path), "/")}
	if file := f.byName[name]; file != nil {
		return file, nil
	}
	content, err := safefile.ReadFileIn(volume.HostPath, name.path, maxEnvFile)
	file := &envFile{readErr: err}
	if f.size += len(content); f.size > maxEnvFiles {
		return nil, fmt.Errorf("env file %q in volume %q: %w: all env files of the container together have more "+
			"than %d bytes",
			clip(ref.Path), ref.VolumeName, podspec.ErrTooLong, maxEnvFiles)
	}
	if err == nil {
		file.values, file.parseErr = parseEnvFile(string(content))
	}
	if f.byName == nil {
		f.byName = map[envFileName]*envFile{}
	}
	f.byName[name] = file
	return file, nil
}

// key returns the value of a key in a file of a volume (KEP-3721), or false if the
// reference is optional, and the file or the key does not exist. The containers of the pod
// write the volume, so no link leads out of it, and no error contains what is in the file.
func (f *envFiles) key(in *Container, ref *v1.FileKeySelector) (string, bool, error) {
	volume, ok := in.Volumes[ref.VolumeName]
	if !ok {
		return "", false, fmt.Errorf("cannot find the volume %q referenced by FileKeyRef", ref.VolumeName)
	}
	file, err := f.get(volume, ref)
	if err != nil {
		return "", false, err
	}
	switch err := file.readErr; {
	case errors.Is(err, fs.ErrNotExist) && isTrue(ref.Optional):
		return "", false, nil
	case errors.Is(err, fs.ErrNotExist):
		return "", false, fmt.Errorf("env file %q in volume %q does not exist", ref.Path, ref.VolumeName)
	case err != nil:
		return "", false, &hiddenError{fmt.Sprintf("couldn't read env file %q in volume %q", ref.Path, ref.VolumeName),
			err}
	}
	value, defined := file.values[ref.Key]
	if !defined && file.parseErr != nil {
		return "", false, fmt.Errorf("couldn't parse env file %q in volume %q: %w", ref.Path,
			ref.VolumeName, file.parseErr)
	}
	if value == "" && !isTrue(ref.Optional) {
		return "", false, fmt.Errorf("environment variable key %q not found in file %q", ref.Key, ref.Path)
	}
	return value, value != "", nil
}

// parseEnvFile returns the values, also those before an error. Each variable is
// NAME='VALUE' with any text but quotes in the value, also line breaks. A comment begins
// with # at the start of a line or after a value. As in a shell, a name whose = is
// followed by a blank has no value. The format is the part of a shell's that kubelet
// accepts (kubelet: util/env). The first definition counts.
func parseEnvFile(text string) (map[string]string, error) {
	values := map[string]string{}
	define := func(name, value string) {
		if _, defined := values[name]; !defined {
			values[name] = value
		}
	}
	text = strings.ReplaceAll(text, "\r\n", "\n")
	for rest := text; rest != ""; {
		fail := func(what string) (map[string]string, error) {
			return values, fmt.Errorf("invalid environment variable format at line %d: %s",
				1+strings.Count(text[:len(text)-len(rest)], "\n"), what)
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
			return fail("missing '='")
		case name == "":
			return fail("empty variable name")
		case strings.TrimRight(name, " \t") != name:
			return fail("whitespace before '=' is not allowed")
		case value != strings.TrimLeft(value, " \t"):
			define(name, "")
			rest = after
			continue
		case !strings.HasPrefix(value, "'"):
			return fail("value must be enclosed in single quotes")
		}
		value, after, ok = strings.Cut(rest[strings.Index(rest, "='")+2:], "'")
		if !ok {
			return fail("unclosed single quote")
		}
		line, after, _ = strings.Cut(after, "\n")
		if line = strings.TrimLeft(line, " \t"); line != "" && line[0] != '#' {
			return fail("unexpected content after closing quote")
		}
		define(name, value)
		rest = after
	}
	return values, nil
}
