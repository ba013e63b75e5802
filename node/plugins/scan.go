package plugins

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/kubeletkit/kubeletkit/internal/fswatch"
)

// scan finds the sockets in the registry. Each socket has a number: one that is created again at the same path has
// another one.
type scan struct {
	dir   string
	known map[string]file
	last  uint64
}

type file struct {
	info   os.FileInfo
	number uint64
}

func newScan(dir string) *scan { return &scan{dir: dir, known: map[string]file{}} }

// read returns the numbers of the sockets by path. It calls each for each directory, before it is read, so that nothing
// is missed. The error joins what could not be read; sockets that were known there are kept.
func (s *scan) read(each func(dir string) error) (map[string]uint64, error) {
	var errs []error
	if err := os.MkdirAll(s.dir, 0o750); err != nil {
		errs = append(errs, err)
	}
	found := map[string]uint64{}
	var unread []string
	s.walk(s.dir, each, found, func(dir string, err error) {
		errs = append(errs, err)
		if dir != "" {
			unread = append(unread, dir+string(filepath.Separator))
		}
	})
	for path, f := range s.known {
		if _, ok := found[path]; ok {
			continue
		}
		for _, dir := range unread {
			if strings.HasPrefix(path, dir) {
				found[path] = f.number
			}
		}
		if found[path] == 0 {
			delete(s.known, path)
		}
	}
	return found, errors.Join(errs...)
}

// walk calls failed with each directory that cannot be read, and with "" if the watcher cannot watch one.
func (s *scan) walk(dir string, each func(string) error, found map[string]uint64, failed func(dir string, err error)) {
	watched := each(dir)
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) && dir != s.dir {
		return // it was removed meanwhile
	}
	if err != nil {
		failed(dir, err)
		return
	}
	if watched != nil && !errors.Is(watched, fs.ErrNotExist) && !errors.Is(watched, fswatch.ErrClosed) {
		failed("", watched)
	}
	for _, entry := range entries {
		path := filepath.Join(dir, entry.Name())
		if strings.HasPrefix(entry.Name(), ".") {
			continue
		}
		if entry.IsDir() {
			s.walk(path, each, found, failed)
			continue
		}
		info, err := os.Stat(path) // a link to a socket is one, as in kubelet
		if err != nil || info.Mode()&fs.ModeSocket == 0 {
			continue
		}
		known, ok := s.known[path]
		// The number of an inode is used again, but not with the same time. The mode may be changed after the socket
		// was made.
		if !ok || !os.SameFile(known.info, info) || !known.info.ModTime().Equal(info.ModTime()) {
			s.last++
			known = file{info, s.last}
			s.known[path] = known
		}
		found[path] = known.number
	}
}
