package podconfig

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// replay applies changes as a reader does, and checks that each is legal.
type replay struct{ pods map[types.UID]*v1.Pod }

func newReplay() *replay { return &replay{map[types.UID]*v1.Pod{}} }

func (r *replay) apply(t require.TestingT, c Change) {
	for _, p := range c.Pods {
		old, known := r.pods[p.UID]
		if c.Op != Remove {
			require.Equal(t, c.Source, p.Annotations[runtime.AnnotationConfigSource])
		}
		switch c.Op {
		case Add, Restore:
			require.False(t, known, "added twice: %s", p.UID)
		case Update, Delete, Reconcile, Remove:
			require.True(t, known, "%s of an unknown pod: %s", c.Op, p.UID)
			require.Equal(t, old.Name, p.Name, "a UID keeps its name")
		default:
			require.Fail(t, "unknown operation")
		}
		if c.Op == Remove {
			delete(r.pods, p.UID)
		} else {
			r.pods[p.UID] = p
		}
	}
}

// check compares what the reader knows with what the sources said last: each full
// name and each UID that somebody wants is there, once, as somebody wants it.
func (r *replay) check(t require.TestingT, said [][]*v1.Pod) {
	names := map[string]types.UID{}
	for uid, p := range r.pods {
		require.Equal(t, uid, p.UID)
		require.NotContains(t, names, p.Name, "one pod of a name")
		names[p.Name] = uid
		source := p.Annotations[runtime.AnnotationConfigSource]
		var index int
		_, err := fmt.Sscanf(source, "s%d", &index)
		require.NoError(t, err)
		require.True(t, slices.ContainsFunc(said[index], func(q *v1.Pod) bool {
			return q.UID == p.UID && q.Name == p.Name && difference(p, q) == 0
		}), "pod %s/%s is not what source %s wants", p.Name, p.UID, source)
	}
	for i, pods := range said {
		for _, p := range pods {
			_, named := names[p.Name]
			_, known := r.pods[p.UID]
			require.True(t, named || known, "source %d wants %s/%s and nobody holds its name or UID", i, p.Name, p.UID)
		}
	}
}

// model says in the plainest way what the stream should lead to.
type model struct {
	sources []*modelSource // as registered
	held    []modelHold
}

type modelSource struct {
	name   string
	seen   bool
	offers []*v1.Pod // of each UID one, in the order in which the UIDs came
	// what was said since the last drain: whether there was a Set, and the deltas
	// after it
	whole  bool
	set    []*v1.Pod
	deltas []delta
}

// modelHold is that a source's pod has its UID and name.
type modelHold struct {
	source *modelSource
	uid    types.UID
	name   string
}

func (s *modelSource) find(uid types.UID) int {
	return slices.IndexFunc(s.offers, func(p *v1.Pod) bool { return p.UID == uid })
}

func (s *modelSource) put(p *v1.Pod) {
	if i := s.find(p.UID); i >= 0 {
		s.offers[i] = p
	} else {
		s.offers = append(s.offers, p)
	}
}

// hear takes in what was said.
func (s *modelSource) hear() {
	if s.whole {
		s.seen = true
		var set []*v1.Pod // the first of each UID
		for _, p := range s.set {
			if !slices.ContainsFunc(set, func(q *v1.Pod) bool { return q.UID == p.UID }) {
				set = append(set, p)
			}
		}
		s.offers = slices.DeleteFunc(s.offers, func(p *v1.Pod) bool {
			return !slices.ContainsFunc(set, func(q *v1.Pod) bool { return q.UID == p.UID })
		})
		for _, p := range set {
			s.put(p)
		}
	}
	for i, d := range s.deltas { // the last of each UID, at the place of the first
		if slices.ContainsFunc(s.deltas[:i], func(e delta) bool { return e.uid == d.uid }) {
			continue
		}
		for _, later := range s.deltas[i:] {
			if later.uid == d.uid {
				d = later
			}
		}
		if d.pod != nil {
			s.put(d.pod)
		} else if at := s.find(d.uid); at >= 0 {
			s.offers = slices.Delete(s.offers, at, at+1)
		}
	}
	s.whole, s.set, s.deltas = false, nil, nil
}

// drain takes in all that was said and decides who holds what.
func (m *model) drain() {
	for _, s := range m.sources {
		s.hear()
	}
	var freed []modelHold
	m.held = slices.DeleteFunc(m.held, func(h modelHold) bool {
		gone := !slices.Contains(m.sources, h.source)
		if !gone {
			i := h.source.find(h.uid)
			gone = i < 0 || h.source.offers[i].Name != h.name
		}
		if gone {
			freed = append(freed, h)
		}
		return gone
	})
	for _, heirs := range []bool{true, false} {
		for _, s := range m.sources {
			for _, p := range s.offers {
				heir := slices.ContainsFunc(freed, func(h modelHold) bool {
					return h.source == s && (h.uid == p.UID || h.name == p.Name)
				})
				taken := slices.ContainsFunc(m.held, func(h modelHold) bool { return h.uid == p.UID || h.name == p.Name })
				if !taken && (heir || !heirs) {
					m.held = append(m.held, modelHold{s, p.UID, p.Name})
				}
			}
		}
	}
}

// world is a mux without its goroutines, a reader, and the model of both.
type world struct {
	mux      *Mux
	delivery *delivery
	reader   *replay
	last     Op // that was read in the batch under way
	model    model
	refused  map[string]bool
	now      time.Time
}

func (w *world) turn() {
	if !w.delivery.begun {
		w.delivery.plan()
		w.mux.publish()
	}
}

func (w *world) drain() {
	w.now = w.now.Add(time.Second)
	w.refuse(w.delivery.absorb(w.mux.take(), w.now))
	w.model.drain()
	w.turn()
}

func (w *world) refuse(rejections []Rejection) {
	for _, r := range rejections {
		w.refused[r.Source+" "+r.Pod.Name+" "+string(r.Pod.UID)] = true
	}
}

func (w *world) read(t *rapid.T) {
	if len(w.delivery.batch) == 0 {
		return
	}
	c := w.delivery.batch[0].Change
	if w.delivery.begun {
		require.GreaterOrEqual(t, c.Op, w.last, "in order within a batch")
	}
	w.last = c.Op
	if c.Op == Restore {
		require.NotContains(t, w.mux.Sources(), SourceState{c.Source, true}, "restored after its source was seen")
	}
	w.reader.apply(t, c)
	w.delivery.advance()
	w.turn()
}

// settled compares the reader, who has taken all, with the model.
func (w *world) settled(t *rapid.T) {
	require.Empty(t, w.delivery.ledger.open)
	require.Len(t, w.reader.pods, len(w.model.held))
	for _, h := range w.model.held {
		p := w.reader.pods[h.uid]
		require.NotNil(t, p, "%s of %s is missing", h.uid, h.source.name)
		require.Equal(t, h.name, p.Name)
		require.Equal(t, h.source.name, p.Annotations[runtime.AnnotationConfigSource])
		require.Zero(t, difference(p, h.source.offers[h.source.find(h.uid)]), "%s is not as it was said last", h.uid)
	}
	all := true
	states := w.mux.Sources()
	require.Len(t, states, len(w.model.sources))
	for i, s := range w.model.sources {
		require.Equal(t, SourceState{s.name, s.seen}, states[i])
		all = all && s.seen
		for _, p := range s.offers {
			if !slices.Contains(w.model.held, modelHold{s, p.UID, p.Name}) {
				require.True(t, w.refused[s.name+" "+p.Name+" "+string(p.UID)], "%s of %s is held back in silence", p.UID, s.name)
			}
		}
	}
	require.Equal(t, all, w.mux.AllSeen())
}

func drawPod(t *rapid.T) *v1.Pod {
	p := testPod(rapid.StringMatching("[1-5]").Draw(t, "uid"), rapid.StringMatching("[a-d]").Draw(t, "name"), image(rapid.StringMatching("[x-y]").Draw(t, "image")))
	switch rapid.IntRange(0, 5).Draw(t, "kind") {
	case 0:
		deleted(p)
	case 1:
		p.Status.Phase = v1.PodRunning
	}
	return p
}

func drawUID(t *rapid.T) types.UID { return types.UID(rapid.StringMatching("[1-5]").Draw(t, "uid")) }

func drawPods(t *rapid.T) []*v1.Pod {
	return rapid.SliceOfN(rapid.Custom(drawPod), 0, 4).Draw(t, "pods")
}

// muxProperty plays what sources may say and do, and a reader of random slowness,
// against the model: the reader ends up with the union of what was said last.
func muxProperty(t *rapid.T) {
	w := &world{delivery: newDelivery(), reader: newReplay(), refused: map[string]bool{}, now: time.Unix(0, 0)}
	var err error
	w.mux, err = New(Options{})
	require.NoError(t, err)
	add := func(name string) {
		if w.mux.Add(newScripted(name)) == nil { // never run
			w.model.sources = append(w.model.sources, &modelSource{name: name})
		}
	}
	add("s0")
	add("s1")
	var restored []*v1.Pod
	for _, p := range drawPods(t) {
		p.Annotations = map[string]string{runtime.AnnotationConfigSource: rapid.SampledFrom([]string{"s0", "s1", "s2"}).Draw(t, "from")}
		for _, s := range w.model.sources {
			if s.name == p.Annotations[runtime.AnnotationConfigSource] && s.find(p.UID) < 0 {
				s.offers = append(s.offers, p)
			}
		}
		restored = append(restored, p)
	}
	_, rejections := w.delivery.restore(restored, []*origin{w.mux.feeds[0].origin, w.mux.feeds[1].origin}, w.now)
	w.refuse(rejections)
	w.model.drain()
	w.turn()

	pick := func(t *rapid.T) (*feed, *modelSource) {
		if len(w.mux.feeds) == 0 {
			t.Skip("no sources")
		}
		i := rapid.IntRange(0, len(w.mux.feeds)-1).Draw(t, "source")
		return w.mux.feeds[i], w.model.sources[i]
	}
	t.Repeat(map[string]func(*rapid.T){
		"set": func(t *rapid.T) {
			f, s := pick(t)
			pods := drawPods(t)
			s.whole, s.set, s.deltas = true, pods, nil
			f.Set(pods)
		},
		"update": func(t *rapid.T) {
			f, s := pick(t)
			pods := drawPods(t)
			for _, p := range pods {
				s.deltas = append(s.deltas, delta{p.UID, p})
			}
			update(f, pods...)
		},
		"replace": func(t *rapid.T) {
			f, s := pick(t)
			d := Delta{Update: drawPods(t), Remove: rapid.SliceOfN(rapid.Custom(drawUID), 0, 3).Draw(t, "uids")}
			for _, uid := range d.Remove {
				s.deltas = append(s.deltas, delta{uid, nil})
			}
			for _, p := range d.Update {
				s.deltas = append(s.deltas, delta{p.UID, p})
			}
			f.Apply(d)
		},
		"remove": func(t *rapid.T) {
			f, s := pick(t)
			uid := drawUID(t)
			s.deltas = append(s.deltas, delta{uid, nil})
			remove(f, uid)
		},
		"add source": func(t *rapid.T) { add(rapid.StringMatching("s[0-3]").Draw(t, "name")) },
		"remove source": func(t *rapid.T) {
			f, s := pick(t)
			require.True(t, w.mux.Remove(f.name))
			w.model.sources = slices.DeleteFunc(w.model.sources, func(other *modelSource) bool { return other == s })
		},
		"drain": func(*rapid.T) { w.drain() },
		"read":  w.read,
		"": func(t *rapid.T) {
			if w.mux.AllSeen() {
				for _, s := range w.model.sources {
					require.True(t, s.seen, "%s was not heard", s.name)
				}
			}
			require.LessOrEqual(t, len(w.delivery.ledger.open), len(w.reader.pods)+len(w.model.held))
		},
	})
	w.drain()
	for len(w.delivery.batch) > 0 {
		w.read(t)
	}
	w.settled(t)
}

func TestMuxModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, muxProperty)
}

func FuzzMux(f *testing.F) { f.Fuzz(rapid.MakeFuzz(muxProperty)) }

// TestMuxConcurrently has sources and reader race.
func TestMuxConcurrently(t *testing.T) {
	t.Parallel()
	const rounds = 300
	var sources []Source
	said := make([][]*v1.Pod, 4)
	var all sync.WaitGroup
	for i := range said {
		all.Add(1)
		name := fmt.Sprintf("s%d", i)
		next := func(n int) (pods []*v1.Pod) {
			for k := range n % 5 {
				pods = append(pods, testPod(fmt.Sprintf("%d-%d", k, (n+i)%7), fmt.Sprint("p", k+i), image(fmt.Sprint(n%3))))
			}
			return pods
		}
		if i%2 == 0 {
			sources = append(sources, sourceFunc{name, func(_ context.Context, sink Sink) error {
				defer all.Done()
				for n := range rounds {
					said[i] = next(n)
					sink.Set(said[i])
				}
				return nil
			}})
			continue
		}
		sources = append(sources, sourceFunc{name, func(_ context.Context, sink Sink) error {
			defer all.Done()
			sink.Set(nil)
			for n := range rounds {
				d := Delta{Update: next(n)}
				for _, p := range said[i] {
					d.Remove = append(d.Remove, p.UID)
				}
				said[i] = d.Update
				sink.Apply(d)
			}
			return nil
		}})
	}
	m, err := New(Options{Sources: sources})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- m.Run(ctx) }()
	finished := make(chan struct{})
	go func() { all.Wait(); close(finished) }()

	r := newReplay()
	quiet := time.NewTimer(time.Hour)
	for ended := false; !ended; {
		select {
		case c := <-m.Changes():
			r.apply(t, c)
			if finished == nil {
				quiet.Reset(100 * time.Millisecond)
			}
		case <-finished:
			finished = nil
			quiet.Reset(100 * time.Millisecond)
		case <-quiet.C:
			ended = true
		}
	}
	require.True(t, m.AllSeen())
	r.check(t, said)
	cancel()
	require.NoError(t, <-done)
}

// sourceFunc is a source of one function.
type sourceFunc struct {
	name string
	run  func(ctx context.Context, sink Sink) error
}

func (s sourceFunc) Name() string                             { return s.name }
func (s sourceFunc) Run(ctx context.Context, sink Sink) error { return s.run(ctx, sink) }
