package podconfig

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// feed is a registered source and what it said. It is the [Sink] that the source's
// words come through.
type feed struct {
	mux    *Mux
	name   string
	source Source
	// origin belongs to the delivery.
	origin *origin

	// The others are guarded by Mux.mu. news is what was not taken in yet; of a source
	// that was removed it never is. announced says that all which came of the first
	// snapshot has reached the reader.
	news      news
	announced bool
	// cancel ends the source, which closes done; nil while it does not run.
	cancel context.CancelFunc
	done   chan struct{}
}

func (f *feed) Set(pods []*v1.Pod) {
	f.say(func(n *news) { *n = news{whole: true, pods: pods} })
}

func (f *feed) Apply(d Delta) {
	f.say(func(n *news) {
		for _, uid := range d.Remove {
			n.put(uid, nil)
		}
		for _, pod := range d.Update {
			if pod != nil {
				n.put(pod.UID, pod)
			}
		}
	})
}

func (f *feed) NodeName() string { return f.mux.nodeName }

func (f *feed) say(what func(n *news)) {
	f.mux.mu.Lock()
	if !f.mux.frozen {
		what(&f.news)
	}
	f.mux.mu.Unlock()
	f.mux.wake()
}

// news is what a source said since it was last taken in: a snapshot, if whole is
// set, and the changes after it, the last one of each UID.
type news struct {
	whole  bool
	pods   []*v1.Pod
	deltas []delta
	at     map[types.UID]int // positions in deltas
}

// delta is a pod that was added or replaced; it is nil if the pod of that UID is
// wanted no more.
type delta struct {
	uid types.UID
	pod *v1.Pod
}

func (n *news) put(uid types.UID, pod *v1.Pod) {
	i, ok := n.at[uid]
	if !ok {
		if n.at == nil {
			n.at = map[types.UID]int{}
		}
		i = len(n.deltas)
		n.at[uid] = i
		n.deltas = append(n.deltas, delta{})
	}
	n.deltas[i] = delta{uid, pod}
}

func (n *news) empty() bool { return !n.whole && len(n.deltas) == 0 }
