package pleg

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Hold says that somebody begins to change the pod and will read its status into the
// cache when that is done, which [Evented.Release] tells. Until then, events about the
// pod do not have it inspected: nobody could act on them sooner, and the read that
// follows shows what they are about. Holds count, each needs its Release. Relists
// look at the pod as always.
func (e *Evented) Hold(uid types.UID) { e.news.hold(uid) }

// Release ends a [Evented.Hold].
func (e *Evented) Release(uid types.UID) { e.news.release(uid, e.cache.Now()) }

// hold has hints about the pod wait.
func (n *news) hold(uid types.UID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	put(&n.holds, uid, n.holds[uid]+1)
}

// release takes back a hold. With the last one, the hints that have waited come; mark
// is drawn now.
func (n *news) release(uid types.UID, mark runtime.Mark) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.holds[uid] > 1 {
		n.holds[uid]--
		return
	}
	delete(n.holds, uid)
	if late, ok := n.late[uid]; ok {
		delete(n.late, uid)
		for _, h := range append(late.more, late.Hint) {
			n.hint(h, mark)
		}
		n.rouse()
	}
}

// waiting reports whether a hint about the pod waits for a release.
func (n *news) waiting(uid types.UID) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, late := n.late[uid]
	return late
}
