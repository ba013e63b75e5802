package plugins

import (
	"sync"

	"github.com/fsnotify/fsnotify"

	"github.com/kubeletkit/kubeletkit/internal/flow"
)

// watcher reports that something in one of the directories has changed.
type watcher interface {
	Add(dir string) error
	Changed() <-chan struct{}
	Close()
}

// kernel is the watcher that asks the kernel.
type kernel struct {
	w       *fsnotify.Watcher
	changed flow.Signal
	joined  sync.WaitGroup
}

func newWatcher() (watcher, error) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	k := &kernel{w: w, changed: flow.NewSignal()}
	k.joined.Go(k.run)
	return k, nil
}

// run merges events: a scan finds out what they were about. An error means that events were lost.
func (k *kernel) run() {
	for {
		select {
		case e, ok := <-k.w.Events:
			if !ok {
				return
			}
			if e.Op == fsnotify.Chmod || e.Op == fsnotify.Write {
				continue
			}
		case _, ok := <-k.w.Errors:
			if !ok {
				return
			}
		}
		k.changed.Notify()
	}
}

func (k *kernel) Add(dir string) error     { return k.w.Add(dir) }
func (k *kernel) Changed() <-chan struct{} { return k.changed }

func (k *kernel) Close() {
	_ = k.w.Close()
	k.joined.Wait()
}
