package file

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/kubeletkit/kubeletkit/internal/safefile"
)

// errAwaited means that the path has not existed yet, see [Options.Await].
var errAwaited = errors.New("the path does not exist yet")

// list returns the manifest files at the path.
func (s *state) list(ctx context.Context) (map[string]os.FileInfo, error) {
	infos := map[string]os.FileInfo{}
	info, err := s.reader.Stat(ctx, s.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if s.opts.Await && !s.known {
			s.logOnce("", "Manifest path does not exist; waiting for it, pods that run stay")
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
	entries, err := s.reader.ReadDir(ctx, s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return infos, nil
	}
	if err != nil {
		return nil, fmt.Errorf("manifest directory cannot be read, its last valid content stays: %w", err)
	}
	// A program may write files under ever new names.
	maps.DeleteFunc(s.ignored, func(name string, _ bool) bool {
		_, there := slices.BinarySearchFunc(entries, name,
			func(e os.DirEntry, name string) int { return strings.Compare(e.Name(), name) })
		return !there
	})
	manifests := make([]os.DirEntry, 0, len(entries))
	for _, e := range entries {
		if IsManifest(e.Name()) {
			manifests = append(manifests, e)
		} else {
			s.logIgnored(e.Name())
		}
	}
	for i, found := range s.stat(ctx, manifests) {
		e := manifests[i]
		if errors.Is(found.err, fs.ErrNotExist) { // a dangling link, or a file that was just removed
			if e.Type()&fs.ModeSymlink != 0 {
				s.logOnce(e.Name(), "File is ignored: it is a symbolic link to a file that does not exist")
			}
			continue
		}
		delete(s.ignored, e.Name())
		infos[filepath.Join(s.path, e.Name())] = found.info // nil after another error; reading the file shows it again
	}
	return infos, nil
}

// look is the result of a look at a file.
type look struct {
	info os.FileInfo
	err  error
}

// stat looks at the files: at all of them in one call, and if that has no answer, at each of them.
func (s *state) stat(ctx context.Context, files []os.DirEntry) []look {
	all, err := safefile.Call(ctx, s.reader, filepath.Join(s.path, "*"), func() ([]look, error) {
		looks := make([]look, len(files))
		for i, f := range files {
			looks[i].info, looks[i].err = os.Stat(filepath.Join(s.path, f.Name()))
		}
		return looks, nil
	})
	if err == nil {
		return all
	}
	looks := make([]look, len(files))
	var g errgroup.Group
	g.SetLimit(maxReads)
	for i, f := range files {
		g.Go(func() error {
			looks[i].info, looks[i].err = s.reader.Stat(ctx, filepath.Join(s.path, f.Name()))
			return nil
		})
	}
	_ = g.Wait() // the errors are in looks
	return looks
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
