package runtime

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// WatchStatus implements [StatusCache]. It starts no goroutine and makes no calls: the
// channel receives a value when a read for another caller shows the change.
func (c *Cache) WatchStatus(uid types.UID) (changed <-chan struct{}, stop func()) {
	w := make(chan struct{}, 1)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.watchers == nil {
		c.watchers = map[types.UID][]chan struct{}{}
	}
	c.watchers[uid] = append(c.watchers[uid], w)
	return w, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.watchers[uid] = slices.DeleteFunc(c.watchers[uid], func(o chan struct{}) bool { return o == w })
		if len(c.watchers[uid]) == 0 {
			delete(c.watchers, uid)
		}
	}
}

// wakeWatchers tells the watchers of the pod if its status was replaced by another one. Both
// may be nil. The caller holds mu.
func (c *Cache) wakeWatchers(uid types.UID, was, is *PodStatus) {
	watchers := c.watchers[uid]
	if len(watchers) == 0 || was == nil && is == nil || was != nil && is != nil && showSame(was, is) {
		return
	}
	for _, w := range watchers {
		select {
		case w <- struct{}{}:
		default: // a value waits
		}
	}
}
