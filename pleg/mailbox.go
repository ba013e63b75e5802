package pleg

import (
	"context"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// mailbox passes hints and the state of the event stream from the goroutine of the
// stream to loop. It has sets, not a queue: writers never wait, and it does not grow
// with the number of equal hints.
type mailbox struct {
	// wake has room for one: it is full while there is mail.
	wake flow.Signal

	mu   sync.Mutex
	mail mail
	// holds counts the holds of each pod. deferred has the hints about these pods.
	holds    map[types.UID]int
	deferred map[types.UID]podHints
}

// mail is the content of the mailbox.
type mail struct {
	stream streamState
	// broken is the error with which the last stream has ended, nil if none has.
	broken error
	// hints has the hints by pod.
	hints map[types.UID]podHints
	// held has the pods whose hints were deferred.
	held map[types.UID]struct{}
	// ids has the IDs of hints without a pod; idsMark was drawn after the last of them.
	ids     map[string]struct{}
	idsMark runtime.Mark
	// unmatched is true if there was a hint with neither pod nor ID.
	unmatched bool
}

// podHints are hints about one pod, each once. mark was drawn after the last of them.
type podHints struct {
	pod   runtime.PodRef
	hints []runtime.Hint
	mark  runtime.Mark
}

// with returns the hints with one more. mark was drawn after it.
func (p podHints) with(h runtime.Hint, mark runtime.Mark) podHints {
	p.pod, p.mark = h.Pod, mark
	if !slices.ContainsFunc(p.hints, func(o runtime.Hint) bool { return o.ID == h.ID && o.Event == h.Event }) {
		p.hints = append(p.hints, h)
	}
	return p
}

// shownBy reports whether the view shows the changes that all of the hints are about.
func (p podHints) shownBy(view *runtime.Pod) bool {
	return len(p.hints) > 0 && !slices.ContainsFunc(p.hints, func(h runtime.Hint) bool { return !shows(view, h) })
}

// opened notes that a stream is being opened.
func (m *mailbox) opened(giveUp context.CancelCauseFunc) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mail.stream = streamState{attempt: m.mail.stream.attempt + 1, phase: opened, giveUp: giveUp}
	m.wake.Notify()
}

// established notes that the stream is established, and reports whether that is new.
func (m *mailbox) established() (first bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	first = m.mail.stream.phase != established
	m.mail.stream.phase = established
	m.wake.Notify()
	return first
}

// ended notes that the stream has ended.
func (m *mailbox) ended(err error, unsupported bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mail.stream = streamState{attempt: m.mail.stream.attempt, unsupported: unsupported}
	m.mail.broken = err
	m.wake.Notify()
}

// hint adds a hint, and reports whether the stream is established by it. mark was drawn
// after the hint had come.
func (m *mailbox) hint(h runtime.Hint, mark runtime.Mark) (first bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	first = m.mail.stream.phase != established
	m.mail.stream.phase = established
	m.add(h, mark)
	m.wake.Notify()
	return first
}

// add adds a hint. mu is held.
func (m *mailbox) add(h runtime.Hint, mark runtime.Mark) {
	switch uid := h.Pod.UID; {
	case m.holds[uid] > 0:
		put(&m.deferred, uid, m.deferred[uid].with(h, mark))
		put(&m.mail.held, uid, struct{}{})
	case uid != "":
		put(&m.mail.hints, uid, m.mail.hints[uid].with(h, mark))
	case h.ID != "":
		put(&m.mail.ids, h.ID, struct{}{})
		m.mail.idsMark = mark
	default:
		m.mail.unmatched = true
	}
}

// take returns the mail and empties the mailbox, but for the state of the stream.
func (m *mailbox) take() mail {
	m.mu.Lock()
	defer m.mu.Unlock()
	taken := m.mail
	m.mail = mail{stream: taken.stream}
	return taken
}

// hold defers hints about the pod.
func (m *mailbox) hold(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	put(&m.holds, uid, m.holds[uid]+1)
}

// release ends a hold. With the last one the deferred hints are added; mark is drawn
// now.
func (m *mailbox) release(uid types.UID, mark runtime.Mark) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.holds[uid] > 1 {
		m.holds[uid]--
		return
	}
	delete(m.holds, uid)
	hints, ok := m.deferred[uid]
	if !ok {
		return
	}
	delete(m.deferred, uid)
	for _, h := range hints.hints {
		m.add(h, mark)
	}
	m.wake.Notify()
}

// defers reports whether a hint about the pod is deferred.
func (m *mailbox) defers(uid types.UID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, deferred := m.deferred[uid]
	return deferred
}

// put sets an element of a map that may be nil.
func put[K comparable, V any](m *map[K]V, key K, value V) {
	if *m == nil {
		*m = map[K]V{}
	}
	(*m)[key] = value
}

// takeMail handles the mail: the state of the stream, and its hints.
func (g *generator) takeMail() {
	m := g.stream.take()
	g.takeStreamState(m.stream, m.broken)
	for uid := range m.held {
		g.schedule.hinted(uid)
	}
	for _, hints := range m.hints {
		g.takeHints(hints)
	}
	if len(m.ids) > 0 {
		for _, ref := range g.podStates.owners(m.ids) {
			g.takeHints(podHints{pod: ref, mark: m.idsMark})
		}
	}
	if m.unmatched || len(m.ids) > 0 {
		g.schedule.unmatchedHint()
	}
}

// takeHints handles hints about a pod.
func (g *generator) takeHints(hints podHints) {
	uid := hints.pod.UID
	g.schedule.hinted(uid)
	if g.podStates.hinted(hints, g.cache.Seen(uid)) {
		g.schedule.usefulHint()
	}
}
