package pleg

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// grace is how long a hint may come after the relist that has found what it is
// about. A relist reads the runtime's state, which the events follow; healthy
// streams deliver within milliseconds.
const grace = time.Second

// heed takes in the news of the event stream.
func (e *engine) heed() {
	b := e.news.take()
	was := e.stream
	e.stream = b.stream
	if b.broken != nil {
		e.disconnected(b.broken)
	}
	if b.stream.open && b.stream.n != was.n {
		e.pace.opened()
	}
	if b.stream.up && !e.pace.up {
		e.connected()
	}

	for uid := range b.heard {
		e.heard(uid)
	}
	for _, h := range b.pods {
		e.hint(h)
	}
	if len(b.strays) > 0 {
		for _, ref := range e.records.owners(b.strays) {
			e.hint(hinted{Hint: runtime.Hint{Pod: ref}, mark: b.strayMark})
		}
	}
	if b.lost || len(b.strays) > 0 { // only a relist can tell what they were about
		e.pace.heard, e.strayed = true, true
		e.relistBy(e.began.Add(e.pace.tight))
	}
}

// hint takes in a hint about a pod.
func (e *engine) hint(h hinted) {
	e.heard(h.Pod.UID)
	e.act(e.records.hint(h, e.cache.Seen(h.Pod.UID)))
}

// heard notes that the stream has told of the pod.
func (e *engine) heard(uid types.UID) {
	e.pace.heard = true
	delete(e.suspects, uid)
}

// connected takes in that the event stream is known to stand.
func (e *engine) connected() {
	e.complained = false
	e.acquit() // it may have come after what was found
	e.pace.proven()
	e.relistBy(time.Now()) // for what happened before it stood
	e.opts.Logger.Info("The runtime tells its events; relists are a safety net from now on", "period", e.pace.safety)
}

// disconnected takes in that the event stream has ended, or could not be opened.
func (e *engine) disconnected(err error) {
	log := e.opts.Logger
	switch {
	case e.stream.never:
		log.Info("The runtime has no event stream; relisting", "period", e.pace.tight, "err", err)
	case !e.complained:
		e.complained = true
		log.Info("The runtime's event stream is broken; relisting until it is back", "period", e.pace.tight, "err", err)
	default:
		log.V(4).Info("Still no event stream", "err", err)
	}
	relied := e.pace.up || e.pace.wide()
	e.pace.broke()
	e.acquit()
	if relied {
		e.relistBy(time.Now())
	}
}

// suspect takes in what a relist has found without a hint, if the stream answers
// for that.
func (e *engine) suspect(pods []runtime.PodRef) {
	for _, ref := range pods {
		if !e.news.waiting(ref.UID) {
			e.suspects[ref.UID] = ref
		}
	}
	switch {
	case len(e.suspects) == 0:
		e.pace.clean()
	case e.alarms.judge.IsZero():
		e.alarms.judge = time.Now().Add(grace)
	}
}

// acquit drops all suspects.
func (e *engine) acquit() {
	clear(e.suspects)
	e.alarms.judge = time.Time{}
}

// judge ends the grace: what no hint has told of by now was missed.
func (e *engine) judge() {
	missed := len(e.suspects)
	if missed == 0 {
		e.pace.clean()
		return
	}
	for _, ref := range e.suspects {
		e.opts.Logger.Info("A relist found a change of which the event stream had not told", "pod", ref)
	}
	e.acquit()
	e.opts.Metrics.Missed(missed)
	giveUp := e.pace.missed()
	e.relistBy(time.Now().Add(e.pace.period))
	if giveUp {
		e.stream.giveUp(errDeaf)
	}
}
