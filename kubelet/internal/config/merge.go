package config

import (
	stdjson "encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/json"
)

// merged is what several configurations request together. As with the drop-ins of kubelet, each is a JSON merge patch
// (RFC 7396) of those before: maps are merged, a list replaces the whole list, and null is as if the field was not
// given.
type merged struct {
	content map[string]any
	// given are the fields of all configurations that request something, see givenFields.
	given []Given
}

// loadAll takes the base, a configuration of the program, unless it is nil. It reads the file, unless its name is
// empty, and then the files in the directory and below it, in the order of their paths. given are the fields that
// request something, and those that are unknown or given more than once; fields are all of the first level, and
// evictionHard.
func loadAll(base any, file, dir string, into *KubeletConfiguration) (given []Given, fields []string, err error) {
	var m merged
	if base != nil {
		err = m.addValue(base)
	}
	if err == nil && file != "" {
		err = m.addFile(file, filepath.Dir(file), false)
	}
	hasMain := base != nil || file != ""
	if err == nil && hasMain {
		mergeHardDefaults(m.content)
	}
	if err == nil && dir != "" {
		err = m.addDropIns(dir)
	}
	if err == nil && hasMain && m.content[hardField] == nil {
		m.content[hardField] = map[string]any{} // null in a drop-in, which is no threshold in kubelet, either
	}
	if err == nil {
		err = m.decode(into)
	}
	return m.given, slices.Sorted(maps.Keys(m.content)), err
}

// decode decodes the configurations into the struct.
func (m *merged) decode(into *KubeletConfiguration) error {
	data, err := stdjson.Marshal(m.content)
	if err == nil {
		_, err = decode(data, into) // the problems are in given
	}
	return err
}

// addValue adds a configuration from a value of the program. What a KubeletConfiguration of k8s.io/kubelet has in JSON
// though it is not set, see unset, is not given. Relative paths are those of the working directory.
func (m *merged) addValue(value any) error {
	const where = "of the program"
	var content map[string]any
	data, err := stdjson.Marshal(value)
	if err == nil {
		err = json.UnmarshalCaseSensitivePreserveInts(data, &content)
	}
	if err == nil {
		for _, path := range strings.Fields(unset) {
			dropUnset(content, strings.Split(path, "."))
		}
		data, err = stdjson.Marshal(content)
	}
	var problems []Given
	if err == nil {
		problems, err = decode(data, &KubeletConfiguration{})
	}
	for _, p := range problems {
		err = errors.Join(err, fmt.Errorf("field %s %s", p.Name, p.Less))
	}
	if err == nil {
		err = absolutePaths(content, ".")
	}
	if err != nil {
		return fmt.Errorf("configuration %s: %w", where, withField(err, content))
	}
	m.add(where, content, nil)
	return nil
}

// addDropIns adds the files in the directory and below it. Their relative paths are those of the working directory, as
// in kubelet.
func (m *merged) addDropIns(dir string) error {
	files, err := soon(dir, readTimeout, func() ([]string, error) { return dropIns(dir) })
	if err != nil {
		return fmt.Errorf("reading the directory of configurations: %w", err)
	}
	for _, path := range files {
		if err := m.addFile(path, ".", true); err != nil {
			return err
		}
	}
	return nil
}

// addFile adds a file. Its relative paths are those of the directory dir. A patch is one of --config-dir.
func (m *merged) addFile(path, dir string, isPatch bool) error {
	data, err := ReadFile(path)
	if err != nil {
		return fmt.Errorf("reading the configuration: %w", err)
	}
	var content map[string]any
	data, repeated, err := toJSON(data)
	if err == nil {
		err = json.UnmarshalCaseSensitivePreserveInts(data, &content)
	}
	if err != nil {
		return fmt.Errorf("configuration %s: %w", path, err)
	}
	if content["kind"] != kind || content["apiVersion"] != apiVersion {
		return fmt.Errorf("configuration %s: apiVersion is %v and kind is %v, want %s and %s", path,
			orMissing(content["apiVersion"]), orMissing(content["kind"]), apiVersion, kind)
	}
	if isPatch { // null removes a field, and needs no type
		data, err = stdjson.Marshal(mergePatch(nil, content))
	}
	var unknown []Given
	if err == nil {
		unknown, err = decode(data, &KubeletConfiguration{})
	}
	if err != nil {
		return fmt.Errorf("configuration %s: %w", path, withField(err, content))
	}
	if err := absolutePaths(content, dir); err != nil {
		return err
	}
	m.add(path, content, append(repeated, unknown...))
	return nil
}

// add merges the content of a configuration, which has no other fields of a wrong type than unknown ones.
func (m *merged) add(where string, content map[string]any, problems []Given) {
	m.content = mergePatch(m.content, content)
	m.given = slices.DeleteFunc(m.given, func(g Given) bool { return isNull(content, strings.Split(g.Name, ".")) })
	m.given = append(m.given, givenFields(where, content, problems)...)
}

// mergePatch changes the target by a JSON merge patch (RFC 7396), and returns it. It may be nil.
func mergePatch(target, patch map[string]any) map[string]any {
	if target == nil {
		target = map[string]any{}
	}
	for name, value := range patch {
		switch value := value.(type) {
		case nil:
			delete(target, name)
		case map[string]any:
			below, _ := target[name].(map[string]any)
			target[name] = mergePatch(below, value)
		default:
			target[name] = value
		}
	}
	return target
}

// isNull reports whether the field of the path, or one above it, is null.
func isNull(content map[string]any, path []string) bool {
	value, ok := content[path[0]]
	if below, isMap := value.(map[string]any); isMap && len(path) > 1 {
		return isNull(below, path[1:])
	}
	return ok && value == nil
}

// pathFields are the fields of files and directories of the machine.
const pathFields = "staticPodPath podLogsDir resolvConf tlsCertFile tlsPrivateKeyFile authentication.x509.clientCAFile"

// absolutePaths makes paths that are relative to a directory absolute.
func absolutePaths(content map[string]any, dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	for field := range strings.FieldsSeq(pathFields) {
		names := strings.Split(field, ".")
		above := content
		for _, name := range names[:len(names)-1] {
			above, _ = above[name].(map[string]any) // nil has no fields
		}
		last := names[len(names)-1]
		if path, _ := above[last].(string); path != "" && !filepath.IsAbs(path) {
			above[last] = filepath.Join(dir, path)
		}
	}
	return nil
}
