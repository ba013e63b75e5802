package file

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// errAwaited means that the path has not existed yet, see [Options.Await].
var errAwaited = errors.New("the path does not exist yet")

// list returns the manifest files at the path.
func (s *state) list() (map[string]os.FileInfo, error) {
	infos := map[string]os.FileInfo{}
	info, err := os.Stat(s.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if s.opts.Await && !s.known {
			s.logOnce("", "Manifest path does not exist; waiting for it, restored pods stay")
			return nil, errAwaited
		}
		if s.onlyObjects {
			s.logOnce("", "Path of secrets and config maps does not exist; there are none")
		} else {
			s.logOnce("", "Manifest path does not exist; it holds no pods, and pods that it held are ended")
		}
		return infos, nil
	case err != nil:
		return nil, fmt.Errorf("manifests cannot be read, their last valid content stays: %w", err)
	}
	delete(s.ignored, "")
	if !info.IsDir() {
		infos[s.path] = info
		return infos, nil
	}
	entries, err := os.ReadDir(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return infos, nil
	}
	if err != nil {
		return nil, fmt.Errorf("manifest directory cannot be read, its last valid content stays: %w", err)
	}
	// A program may write files under ever new names.
	maps.DeleteFunc(s.ignored, func(name string, _ bool) bool {
		_, there := slices.BinarySearchFunc(entries, name, func(e os.DirEntry, name string) int { return strings.Compare(e.Name(), name) })
		return !there
	})
	for _, e := range entries {
		if !IsManifest(e.Name()) {
			s.logIgnored(e.Name())
			continue
		}
		path := filepath.Join(s.path, e.Name())
		info, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) { // a dangling link, or a file that was just removed
			if e.Type()&fs.ModeSymlink != 0 {
				s.logOnce(e.Name(), "File is ignored: it is a symbolic link to a file that does not exist")
			}
			continue
		}
		delete(s.ignored, e.Name())
		infos[path] = info // nil after another error; reading the file shows it again
	}
	return infos, nil
}

// IsManifest reports whether a [Source] reads a file of that name in its directory: it ends in .yaml, .yml or
// .json, and is neither hidden nor a file of an editor.
func IsManifest(name string) bool {
	if strings.HasPrefix(name, ".") || strings.HasPrefix(name, "#") {
		return false
	}
	switch filepath.Ext(name) {
	case ".yaml", ".yml", ".json":
		return true
	default:
		return false
	}
}

// logIgnored logs once that a file is not read, if its author may expect that it is.
func (s *state) logIgnored(name string) {
	if strings.HasPrefix(name, ".") || strings.HasPrefix(name, "#") || strings.HasSuffix(name, "~") {
		return
	}
	s.logOnce(name, "File is ignored: its name does not end in .yaml, .yml or .json")
}

// logOnce logs the message about a file of the directory once. The empty name is the
// path itself.
func (s *state) logOnce(name, message string) {
	if !s.ignored[name] {
		s.ignored[name] = true
		s.opts.Logger.Info(message, "file", filepath.Join(s.path, name))
	}
}
