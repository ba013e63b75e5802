package podconfig

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/podconfig/internal/podvalidation"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// replay applies changes as a reader does, and checks that each is legal.
type replay struct{ pods map[types.UID]*v1.Pod }

func newReplay() *replay { return &replay{map[types.UID]*v1.Pod{}} }

func (r *replay) apply(t require.TestingT, c Change) {
	for _, p := range c.Pods {
		old, known := r.pods[p.UID]
		if c.Op != Remove {
			require.Equal(t, c.Source, p.Annotations[podspec.AnnotationConfigSource])
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

// check compares the pods of the reader with the last snapshots of the sources: each full
// name and each UID that a source offers is there once, with the content that a source offers.
func (r *replay) check(t require.TestingT, last [][]*v1.Pod) {
	names := map[string]types.UID{}
	for uid, p := range r.pods {
		require.Equal(t, uid, p.UID)
		require.NotContains(t, names, p.Name, "one pod of a name")
		names[p.Name] = uid
		source := p.Annotations[podspec.AnnotationConfigSource]
		var index int
		_, err := fmt.Sscanf(source, "s%d", &index)
		require.NoError(t, err)
		require.True(t, slices.ContainsFunc(last[index], func(q *v1.Pod) bool {
			return q.UID == p.UID && q.Name == p.Name && new(comparer).difference(p, withDefaults(q), false) == 0
		}), "pod %s/%s is not what source %s wants", p.Name, p.UID, source)
	}
	for i, pods := range last {
		for _, p := range pods {
			_, named := names[p.Name]
			_, known := r.pods[p.UID]
			require.True(t, named || known, "source %d offers %s/%s and no pod has its name or UID", i, p.Name, p.UID)
		}
	}
}

// model computes in the plainest way what the stream should lead to.
type model struct {
	sources []*modelSource // in the order of their registration
	granted []modelClaim
}

type modelSource struct {
	name    string
	seen    bool
	offers  []*v1.Pod             // one of each UID, in the order in which the UIDs came
	refused map[types.UID]*v1.Pod // those that are not valid
}

// modelClaim is a UID and a name that a source's pod holds.
type modelClaim struct {
	source *modelSource
	uid    types.UID
	name   string
}

func (s *modelSource) find(uid types.UID) int {
	return slices.IndexFunc(s.offers, func(p *v1.Pod) bool { return p.UID == uid })
}

// withDefaults returns the pod as the mux delivers it, nil if it is not valid.
func withDefaults(p *v1.Pod) *v1.Pod {
	q, _ := podvalidation.Accept(p, "", false)
	return q
}

// refuse reports whether the pod is not valid. Then an earlier version of it stays, and only takes its deletion.
func (s *modelSource) refuse(p *v1.Pod) (refused, offered bool) {
	i := s.find(p.UID)
	if withDefaults(p) != nil {
		return false, i >= 0
	}
	if i >= 0 && p.DeletionTimestamp != nil {
		q := *s.offers[i]
		q.DeletionTimestamp, q.DeletionGracePeriodSeconds = p.DeletionTimestamp, p.DeletionGracePeriodSeconds
		s.offers[i] = &q
	}
	s.refused[p.UID] = p
	return true, i >= 0
}

func (s *modelSource) put(p *v1.Pod) {
	p = withDefaults(p)
	if i := s.find(p.UID); i >= 0 {
		s.offers[i] = p
	} else {
		s.offers = append(s.offers, p)
	}
}

func (m *model) set(s *modelSource, pods []*v1.Pod) {
	s.seen = true
	s.refused = map[types.UID]*v1.Pod{}
	var snapshot []*v1.Pod // the first of each UID that is offered
	for _, p := range pods {
		if slices.ContainsFunc(snapshot, func(q *v1.Pod) bool { return q.UID == p.UID }) {
			continue
		}
		if refused, offered := s.refuse(p); !refused || offered {
			snapshot = append(snapshot, p)
		}
	}
	s.offers = slices.DeleteFunc(s.offers, func(p *v1.Pod) bool {
		return !slices.ContainsFunc(snapshot, func(q *v1.Pod) bool { return q.UID == p.UID })
	})
	for _, p := range snapshot {
		if withDefaults(p) != nil {
			s.put(p)
		}
	}
	m.settle()
}

func (m *model) apply(s *modelSource, d Delta) {
	updated := func(pods []*v1.Pod, uid types.UID) bool {
		return slices.ContainsFunc(pods, func(p *v1.Pod) bool { return p.UID == uid })
	}
	var updates []*v1.Pod // the last of each UID, if it is valid
	for i, p := range d.Update {
		if !updated(d.Update[i+1:], p.UID) {
			if refused, _ := s.refuse(p); !refused {
				updates = append(updates, p)
				delete(s.refused, p.UID)
			}
		}
	}
	for _, uid := range d.Remove {
		if updated(d.Update, uid) {
			continue
		}
		delete(s.refused, uid)
		if at := s.find(uid); at >= 0 {
			s.offers = slices.Delete(s.offers, at, at+1)
		}
	}
	for i, p := range updates {
		if !updated(updates[i+1:], p.UID) {
			s.offers = slices.DeleteFunc(s.offers, func(q *v1.Pod) bool { // it takes the name
				for _, u := range updates {
					if u.UID == q.UID {
						return q.Name == p.Name && u.Name == p.Name && q.UID != p.UID
					}
				}
				return q.Name == p.Name
			})
			s.put(p)
		}
	}
	m.settle()
}

// settle decides which pods hold a UID and a name.
func (m *model) settle() {
	var released []modelClaim
	m.granted = slices.DeleteFunc(m.granted, func(c modelClaim) bool {
		gone := !slices.Contains(m.sources, c.source)
		if !gone {
			i := c.source.find(c.uid)
			gone = i < 0 || c.source.offers[i].Name != c.name
		}
		if gone {
			released = append(released, c)
		}
		return gone
	})
	for _, heirs := range []bool{true, false} {
		for _, s := range m.sources {
			for _, p := range s.offers {
				heir := slices.ContainsFunc(released, func(c modelClaim) bool {
					return c.source == s && (c.uid == p.UID || c.name == p.Name)
				})
				taken := slices.ContainsFunc(m.granted,
					func(c modelClaim) bool { return c.uid == p.UID || c.name == p.Name })
				if !taken && (heir || !heirs) {
					m.granted = append(m.granted, modelClaim{s, p.UID, p.Name})
				}
			}
		}
	}
}

// world is a mux without its goroutines, its reader, and the model of both.
type world struct {
	mux      *Mux
	reader   *replay
	lastOp   Op // of the last change that was read
	model    model
	rejected []string
}

func (w *world) add(t *rapid.T, name string) {
	err := w.mux.Add(NewStatic(name)) // which is never run
	known := slices.ContainsFunc(w.model.sources, func(s *modelSource) bool { return s.name == name })
	require.Equal(t, known, err != nil)
	if !known {
		w.model.sources = append(w.model.sources, &modelSource{name: name, refused: map[types.UID]*v1.Pod{}})
	}
}

// pick draws a registered source.
func (w *world) pick(t *rapid.T) (Sink, *modelSource) {
	if len(w.model.sources) == 0 {
		t.Skip("no sources")
	}
	i := rapid.IntRange(0, len(w.model.sources)-1).Draw(t, "source")
	return &sink{mux: w.mux, registration: w.mux.merger.sources[i]}, w.model.sources[i]
}

// read has the reader receive the next change, and reports whether there was one.
func (w *world) read(t *rapid.T) bool {
	next := w.mux.next()
	if next == nil {
		return false
	}
	c := next.complete()
	if w.mux.merger.batch.begun {
		require.GreaterOrEqual(t, c.Op, w.lastOp, "in order within a batch")
	}
	w.lastOp = c.Op
	if c.Op == Restore {
		for _, s := range w.mux.Sources() {
			require.False(t, s.Name == c.Source && s.Seen, "restored after its source was seen")
		}
	}
	w.reader.apply(t, c)
	w.mux.merger.received()
	return true
}

// check compares the reader, which has received everything, with the model.
func (w *world) check(t *rapid.T) {
	require.Empty(t, w.mux.merger.pending)
	require.Len(t, w.reader.pods, len(w.model.granted))
	for _, c := range w.model.granted {
		p := w.reader.pods[c.uid]
		require.NotNil(t, p, "%s of %s is missing", c.uid, c.source.name)
		require.Equal(t, c.name, p.Name)
		require.Equal(t, c.source.name, p.Annotations[podspec.AnnotationConfigSource])
		require.Zero(t, new(comparer).difference(p, c.source.offers[c.source.find(c.uid)], false),
			"%s is not as it was delivered last", c.uid)
	}
	all := true
	states := w.mux.Sources()
	require.Len(t, states, len(w.model.sources))
	for i, s := range w.model.sources {
		require.Equal(t, s.name, states[i].Name)
		require.Equal(t, s.seen, states[i].Seen)
		rejected := func(p *v1.Pod) bool {
			return slices.ContainsFunc(states[i].Rejected, func(r Rejection) bool { return r.Pod == runtime.RefOf(p) })
		}
		for _, p := range s.refused {
			require.True(t, rejected(p), "%s of %s is not valid", p.UID, s.name)
		}
		for uid, f := range w.mux.merger.sources[i].refused {
			require.NotNil(t, s.refused[uid], "%s of %s: %v", uid, s.name, f.err)
		}
		all = all && s.seen
		for _, p := range s.offers {
			if !slices.Contains(w.model.granted, modelClaim{s, p.UID, p.Name}) {
				require.True(t, rejected(p))
				begin := fmt.Sprintf("pod %s of source %q waits: ", runtime.RefOf(p), s.name)
				require.True(t, slices.ContainsFunc(w.rejected,
					func(message string) bool { return strings.HasPrefix(message, begin) }),
					"%s of %s waits, and there was no event", p.UID, s.name)
			}
		}
	}
	require.Equal(t, all, w.mux.SourcesReady())
}

func drawUID(t *rapid.T) types.UID { return types.UID(rapid.StringMatching("[1-5]").Draw(t, "uid")) }

func drawPod(t *rapid.T) *v1.Pod {
	p := testpod.New(rapid.StringMatching("[a-d]").Draw(t, "name"), testpod.UID(drawUID(t)),
		testpod.Container(v1.Container{Name: "c", Image: rapid.StringMatching("[x-y]").Draw(t, "image")}))
	switch rapid.IntRange(0, 8).Draw(t, "kind") {
	case 0:
		testpod.Deleted(0)(p)
	case 1:
		testpod.Phase(v1.PodRunning)(p)
	case 2:
		p.Spec.Containers[0].Name = "../c"
	case 3:
		p.Spec.Containers[0].Name = "../c"
		testpod.Deleted(1)(p)
	}
	return p
}

func drawPods(t *rapid.T) []*v1.Pod {
	return rapid.SliceOfN(rapid.Custom(drawPod), 0, 4).Draw(t, "pods")
}

func drawUIDs(t *rapid.T) []types.UID {
	return rapid.SliceOfN(rapid.Custom(drawUID), 0, 3).Draw(t, "uids")
}

// muxProperty plays random deliveries of sources that come and go, and a reader of
// random slowness, against the model.
func muxProperty(t *rapid.T) {
	w := &world{reader: newReplay()}
	var err error
	w.mux, err = New(Options{Observer: runtime.Observer{NonBlocking: true,
		Event: func(e runtime.Event) { w.rejected = append(w.rejected, e.Message) }}})
	require.NoError(t, err)
	w.add(t, "s0")
	w.add(t, "s1")
	restored := drawPods(t)
	for _, p := range restored {
		source := rapid.SampledFrom([]string{"s0", "s1", "s2"}).Draw(t, "from")
		testpod.Source(source)(p)
		for _, s := range w.model.sources {
			if s.name == source && s.find(p.UID) < 0 && withDefaults(p) != nil {
				s.put(p)
			} else if s.name == source && s.find(p.UID) < 0 {
				s.refused[p.UID] = p
			}
		}
	}
	w.mux.restorePods(restored)
	w.model.settle()

	var earlier []*v1.Pod
	draw := func(t *rapid.T) []*v1.Pod {
		pods := drawPods(t)
		if len(earlier) > 0 {
			pods = append(pods, rapid.SliceOfN(rapid.SampledFrom(earlier), 0, 2).Draw(t, "earlier pods")...)
		}
		earlier = append(earlier, pods...)
		return pods
	}
	t.Repeat(map[string]func(*rapid.T){
		"set": func(t *rapid.T) {
			sink, s := w.pick(t)
			pods := draw(t)
			w.model.set(s, pods)
			sink.Set(pods)
		},
		"update": func(t *rapid.T) {
			sink, s := w.pick(t)
			d := Delta{Update: draw(t)}
			w.model.apply(s, d)
			sink.Apply(d)
		},
		"remove": func(t *rapid.T) {
			sink, s := w.pick(t)
			d := Delta{Remove: []types.UID{drawUID(t)}}
			w.model.apply(s, d)
			sink.Apply(d)
		},
		"replace": func(t *rapid.T) {
			sink, s := w.pick(t)
			d := Delta{Update: draw(t), Remove: drawUIDs(t)}
			w.model.apply(s, d)
			sink.Apply(d)
		},
		"add source": func(t *rapid.T) { w.add(t, rapid.StringMatching("s[0-3]").Draw(t, "name")) },
		"remove source": func(t *rapid.T) {
			_, s := w.pick(t)
			require.True(t, w.mux.Remove(s.name))
			w.model.sources = slices.DeleteFunc(w.model.sources, func(other *modelSource) bool { return other == s })
			w.model.settle()
		},
		"plan": func(*rapid.T) {
			if next := w.mux.next(); next != nil {
				next.complete()
			}
		},
		"read": func(t *rapid.T) { w.read(t) },
		"": func(t *rapid.T) {
			if w.mux.SourcesReady() {
				for _, s := range w.model.sources {
					require.True(t, s.seen, "%s has not delivered", s.name)
				}
			}
			if len(w.mux.inbox.deliveries) == 0 {
				require.LessOrEqual(t, len(w.mux.merger.pending), len(w.reader.pods)+len(w.model.granted))
			}
		},
	})
	for w.read(t) {
	}
	w.check(t)
}

func TestMuxModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, muxProperty)
}

func FuzzMux(f *testing.F) { f.Fuzz(rapid.MakeFuzz(muxProperty)) }
