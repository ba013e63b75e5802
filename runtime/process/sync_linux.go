package process

import (
	"errors"
	"io/fs"
	"path/filepath"
	"sync"

	"github.com/kubeletkit/kubeletkit/runtime/process/internal/supervise"
)

// maxSyncs is the number of containers whose records are synced in parallel. Each takes a
// thread, and the file system combines what is synced at the same time.
const maxSyncs = 16

// syncRecords makes the records of a container and of its sandbox survive a power loss. It
// is called while the container runs, so that a start does not wait for the disk, and before
// the end of the container is published.
func (s *Server) syncRecords(c *container) {
	select {
	case s.syncing <- struct{}{}:
	case <-s.life.Done():
		return // the next server does it
	}
	var errs []error
	for _, path := range []string{
		filepath.Join(c.dir, recordFile), filepath.Join(c.dir, supervise.StateFile), c.dir,
		s.sandboxFile(c.rec.SandboxID),
	} {
		if err := supervise.Sync(path); !errors.Is(err, fs.ErrNotExist) { // it may be removed, or never have run
			errs = append(errs, err)
		}
	}
	<-s.syncing
	errs = append(errs, s.containersDir.sync(), s.sandboxesDir.sync())
	if err := errors.Join(errs...); err != nil {
		s.opts.Logger.Error(err, "Cannot sync the records of a container; after a power loss it may run again",
			"container", c.rec.Title)
	}
}

// dirSync syncs a directory. Calls at the same time share a sync: a call waits for one that
// has begun after it.
type dirSync struct {
	path string
	// running is held during a sync.
	running sync.Mutex

	mu sync.Mutex
	// next is the sync that has not begun yet, nil if no call waits for one.
	next *sharedSync
}

type sharedSync struct {
	done chan struct{} // closed when err is valid
	err  error
}

func (d *dirSync) sync() error {
	d.mu.Lock()
	s := d.next
	if s != nil {
		d.mu.Unlock()
		<-s.done
		return s.err
	}
	s = &sharedSync{done: make(chan struct{})}
	d.next = s
	d.mu.Unlock()

	d.running.Lock()
	d.mu.Lock()
	d.next = nil // from here on changes may come too late for this sync
	d.mu.Unlock()
	s.err = supervise.Sync(d.path)
	d.running.Unlock()
	close(s.done)
	return s.err
}
