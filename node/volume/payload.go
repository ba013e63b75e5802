package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// payload is the content of a volume: its files by their clean path. A later source of a
// projected volume replaces files of an earlier one (kubelet: collectData).
type payload map[string]file

// file is a file of a payload.
type file struct {
	data []byte
	mode fs.FileMode // permission bits only
	// owner is the user that the file belongs to, nil for that of this process.
	owner *int64
}

// Limits of Linux, in bytes (limits.h: NAME_MAX, PATH_MAX).
const (
	maxName = 255
	maxPath = 4096
)

// pathOfFile returns the clean path of a file, or an error if it cannot be in a volume. Names that
// begin with two dots are those of the writer.
func pathOfFile(name string) (string, error) {
	switch {
	case name == "":
		return "", fmt.Errorf("invalid path: must not be empty: %q", name)
	case strings.HasPrefix(name, "/"):
		return "", fmt.Errorf("invalid path: must be relative path: %s", name)
	case len(name) > maxPath:
		return "", fmt.Errorf("invalid path: must be less than or equal to %d characters", maxPath)
	case strings.Contains(name, "\x00"):
		return "", fmt.Errorf("invalid path: must not contain a null byte: %q", name)
	}
	for item := range strings.SplitSeq(name, "/") {
		if item == ".." {
			return "", fmt.Errorf("invalid path: must not contain '..': %s", name)
		}
		if len(item) > maxName {
			return "", fmt.Errorf("invalid path: filenames must be less than or equal to %d characters", maxName)
		}
	}
	clean := path.Clean(name)
	switch {
	case clean == ".":
		return "", fmt.Errorf("invalid path: must be a file: %s", name)
	case strings.HasPrefix(clean, ".."):
		return "", fmt.Errorf("invalid path: must not start with '..': %s", name)
	case strings.Count(clean, "/") > maxLevels:
		return "", fmt.Errorf("invalid path: must be below at most %d directories: %.100s…", maxLevels, name)
	}
	return clean, nil
}

// filler adds files to a payload. Each file counts for the limit of the pod, also one that a
// later file replaces.
type filler struct {
	payload payload
	work    *work
	dirs    directories
}

func newFiller(w *work) *filler { return &filler{payload{}, w, directories{}} }

// add adds a file, or returns an error if its path cannot be in a volume, or if it is too much.
func (p *filler) add(name string, f file) error {
	clean, err := pathOfFile(name)
	if err != nil {
		return err
	}
	if err := p.work.take(1+p.dirs.above(clean), len(f.data)); err != nil {
		return err
	}
	f.mode = f.mode.Perm()
	p.payload[clean] = f
	return nil
}

// check returns an error if a path is both a file and a directory.
func (p payload) check() error {
	for _, name := range slices.Sorted(maps.Keys(p)) {
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			if _, ok := p[dir]; ok {
				return fmt.Errorf("invalid path: %s is a file, and %s is in it", dir, name)
			}
		}
	}
	return nil
}

// tops returns the names in the root of the volume.
func (p payload) tops() map[string]bool {
	names := make(map[string]bool, len(p))
	for name := range p {
		top, _, _ := strings.Cut(name, "/")
		names[top] = true
	}
	return names
}

// defaultFileMode is the mode of files if the volume has none (API reference:
// ConfigMapVolumeSource, defaultMode). The API server writes it to each volume.
const defaultFileMode = 0o644

// grant is the mode and the owner of files.
type grant struct {
	mode fs.FileMode
	// owner is as in file. It is set only if owners is true.
	owner  *int64
	owners bool
}

// grant returns that of the files of a volume with these defaults.
func (s Sources) grant(mode *int32, user *int64) grant {
	return grant{mode: defaultFileMode, owners: s.owners}.of(mode, user)
}

// of returns the grant with the mode and the owner of a file that has its own.
func (g grant) of(mode *int32, user *int64) grant {
	if mode != nil {
		g.mode = fs.FileMode(*mode)
	}
	if user != nil && g.owners {
		g.owner = user
	}
	return g
}

// file returns a file with the content.
func (g grant) file(data []byte) file { return file{data: data, mode: g.mode, owner: g.owner} }

// addConfigMap adds the keys of a config map: all, or those of items. Missing keys are
// skipped if optional.
func (p *filler) addConfigMap(m *v1.ConfigMap, items []v1.KeyToPath, g grant, optional bool) error {
	texts := map[string][]byte{} // those that have been converted: items may have a key several times
	get := func(key string) ([]byte, bool) {
		s, ok := m.Data[key]
		if !ok {
			b, ok := m.BinaryData[key]
			return b, ok
		}
		if texts[key] == nil {
			texts[key] = []byte(s)
		}
		return texts[key], true
	}
	keys := slices.AppendSeq(slices.Collect(maps.Keys(m.Data)), maps.Keys(m.BinaryData))
	return p.addKeys(keys, get, items, g, optional, "configmap references non-existent config key: %s")
}

// addSecret is addConfigMap for a secret.
func (p *filler) addSecret(s *v1.Secret, items []v1.KeyToPath, g grant, optional bool) error {
	get := func(key string) ([]byte, bool) { b, ok := s.Data[key]; return b, ok }
	return p.addKeys(slices.Collect(maps.Keys(s.Data)), get, items, g, optional,
		"references non-existent secret key: %s")
}

func (p *filler) addKeys(keys []string, get func(string) ([]byte, bool), items []v1.KeyToPath, g grant,
	optional bool, missing string) error {
	if len(items) == 0 {
		slices.Sort(keys) // so that errors are the same each time
		for _, key := range keys {
			data, _ := get(key)
			if err := p.add(key, g.file(data)); err != nil {
				return err
			}
		}
		return nil
	}
	for _, item := range items {
		data, ok := get(item.Key)
		if !ok && optional {
			continue
		}
		if !ok {
			return fmt.Errorf(missing, item.Key)
		}
		if err := p.add(item.Path, g.of(item.Mode, item.User).file(data)); err != nil {
			return err
		}
	}
	return nil
}

// addDownward adds fields of the pod, and requests and limits of its containers.
func (p *filler) addDownward(pod *v1.Pod, items []v1.DownwardAPIVolumeFile, allocatable v1.ResourceList,
	g grant) error {
	var errs []error
	for i := range items {
		item := &items[i]
		value, err := downwardValue(pod, item, allocatable)
		if err == nil {
			err = p.add(item.Path, g.of(item.Mode, item.User).file([]byte(value)))
		}
		if errors.Is(err, errTooMuch) { // so are all others
			return err
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	return utilerrors.NewAggregate(errs)
}

func downwardValue(pod *v1.Pod, item *v1.DownwardAPIVolumeFile, allocatable v1.ResourceList) (string, error) {
	switch {
	case item.FieldRef != nil:
		field := item.FieldRef.FieldPath
		if value, ok, err := podspec.MetadataField(pod, field); ok {
			return value, err
		}
		if _, _, ok := podspec.Subscript(field); ok {
			return "", fmt.Errorf("fieldPath %q does not support subscript", field)
		}
		return "", fmt.Errorf("unsupported fieldPath: %v", field)
	case item.ResourceFieldRef != nil:
		name := item.ResourceFieldRef.ContainerName
		c, kind := podspec.FindContainer(&pod.Spec, name)
		if c == nil || kind == podspec.EphemeralContainer {
			return "", fmt.Errorf("container %s not found", name)
		}
		return podspec.ResourceField(pod, c, item.ResourceFieldRef, allocatable)
	default:
		return "", errors.New("one of fieldRef and resourceFieldRef is required")
	}
}
