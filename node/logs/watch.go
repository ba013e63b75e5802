package logs

import (
	"errors"
	"sync"

	"github.com/fsnotify/fsnotify"
)

// watcher reports writes to files.
type watcher interface {
	// Add has the file watched until Remove, or until it is removed or renamed.
	Add(path string) error
	Remove(path string)
	// Written delivers the path of a watched file that was written to, or that is not watched any more; "" if events
	// were lost.
	Written() <-chan string
	Close()
}

// kernel is the watcher that asks the kernel.
type kernel struct {
	w       *fsnotify.Watcher
	written chan string
	done    chan struct{}
	joined  sync.WaitGroup
}

func newWatcher() (watcher, error) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	k := &kernel{w: w, written: make(chan string), done: make(chan struct{})}
	k.joined.Go(k.run)
	return k, nil
}

func (k *kernel) run() {
	for {
		path := ""
		select {
		case e, ok := <-k.w.Events:
			if !ok {
				return
			}
			path = e.Name
		case _, ok := <-k.w.Errors:
			if !ok {
				return
			}
		}
		select {
		case k.written <- path:
		case <-k.done:
		}
	}
}

func (k *kernel) Add(path string) error  { return k.w.Add(path) }
func (k *kernel) Remove(path string)     { _ = k.w.Remove(path) } // it may not be watched any more
func (k *kernel) Written() <-chan string { return k.written }

func (k *kernel) Close() {
	close(k.done)
	_ = k.w.Close()
	k.joined.Wait()
}

// noWatcher watches nothing.
type noWatcher struct{}

var errNoWatcher = errors.New("there is no inotify instance")

func (noWatcher) Add(string) error       { return errNoWatcher }
func (noWatcher) Remove(string)          {}
func (noWatcher) Written() <-chan string { return nil }
func (noWatcher) Close()                 {}
