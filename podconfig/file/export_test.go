package file

import (
	"time"

	"github.com/kubeletkit/kubeletkit/internal/fswatch"
)

// SetKernel replaces the calls of inotify. A nil function keeps the real one.
func (s *Source) SetKernel(open func() (*fswatch.Watcher, error), add func(w *fswatch.Watcher, path string) error) {
	s.kernel = inotify()
	if open != nil {
		s.kernel.open = open
	}
	if add != nil {
		s.kernel.add = add
	}
}

// SetReadTimeout replaces the time limit of reads.
func (s *Source) SetReadTimeout(d time.Duration) { s.reader.Timeout = d }
