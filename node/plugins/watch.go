package plugins

import "github.com/fsnotify/fsnotify"

// watcher reports that something in one of the directories has changed. While one of its functions is called, another
// goroutine receives from both channels: fsnotify may send an error under the lock that the functions take. The zero
// value reports nothing.
type watcher struct {
	add    func(dir string) error
	close  func() error
	events <-chan fsnotify.Event
	// errors means that events were lost.
	errors <-chan error
}

// newWatcher returns the watcher that asks the kernel.
func newWatcher() (watcher, error) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return watcher{}, err
	}
	return watcher{w.Add, w.Close, w.Events, w.Errors}, nil
}

// matters reports whether the event can be about a socket that comes or goes.
func matters(e fsnotify.Event) bool { return e.Op != fsnotify.Chmod && e.Op != fsnotify.Write }

// stop closes the watcher.
func (w watcher) stop() {
	if w.close == nil {
		return
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_ = w.close()
	}()
	for {
		select {
		case <-closed:
			return
		case <-w.events: // of no use any more
		case <-w.errors:
		}
	}
}
