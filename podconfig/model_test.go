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
type replay struct {
	pods map[types.UID]*v1.Pod
	seen map[string]bool
	last Op
}

func newReplay() *replay { return &replay{pods: map[types.UID]*v1.Pod{}, seen: map[string]bool{}} }

func (r *replay) apply(t require.TestingT, c Change) {
	r.seen[c.Source] = true
	for _, p := range c.Pods {
		old, known := r.pods[p.UID]
		if c.Op != Remove {
			require.Equal(t, c.Source, p.Annotations[runtime.AnnotationConfigSource])
		}
		switch c.Op {
		case Add:
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
			return q.UID == p.UID && q.Name == p.Name && sameDesire(p, q) && p.Status.Phase == q.Status.Phase
		}), "pod %s/%s is not what source %s wants", p.Name, p.UID, source)
	}
	for i, pods := range said {
		own := map[string]bool{} // what the source has said before in the snapshot
		for _, p := range pods {
			if own["name "+p.Name] || own["UID "+string(p.UID)] {
				continue
			}
			own["name "+p.Name], own["UID "+string(p.UID)] = true, true
			_, named := names[p.Name]
			_, known := r.pods[p.UID]
			require.True(t, named || known, "source %d wants %s/%s and nobody holds its name or UID", i, p.Name, p.UID)
		}
	}
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

// TestDeliveryModel plays random snapshots and a reader of random slowness
// against the state behind the stream.
func TestDeliveryModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		sources := []Source{newScripted("s0"), newScripted("s1"), newScripted("s2")}
		d := newDelivery(sources)
		said := make([][]*v1.Pod, len(sources))
		pending := map[int][]*v1.Pod{}
		r := newReplay()
		now := time.Unix(0, 0)
		plan := func() {
			d.plan(pending, now)
			clear(pending)
		}
		rt.Repeat(map[string]func(*rapid.T){
			"say": func(rt *rapid.T) {
				i := rapid.IntRange(0, len(sources)-1).Draw(rt, "source")
				said[i] = nil
				for range rapid.IntRange(0, 4).Draw(rt, "pods") {
					said[i] = append(said[i], drawPod(rt))
				}
				pending[i] = said[i]
				if !d.begun {
					plan()
				}
			},
			"read": func(rt *rapid.T) {
				if len(d.batch) == 0 {
					return
				}
				if d.begun {
					require.GreaterOrEqual(rt, d.batch[0].Op, r.last, "in order within a batch")
				}
				r.last = d.batch[0].Op
				r.apply(rt, d.batch[0].Change)
				d.advance()
				if len(d.batch) == 0 {
					plan()
				}
			},
			"": func(rt *rapid.T) {
				if len(d.batch) == 0 && len(pending) == 0 {
					r.check(rt, said)
				}
			},
		})
		for len(d.batch) > 0 {
			r.apply(rt, d.batch[0].Change)
			d.advance()
			if len(d.batch) == 0 {
				plan()
			}
		}
		r.check(rt, said)
		for i, s := range sources {
			require.Equal(rt, d.origins[i].seen, r.seen[s.Name()])
		}
	})
}

// TestMuxConcurrently has sources and reader race.
func TestMuxConcurrently(t *testing.T) {
	t.Parallel()
	const rounds = 300
	var sources []Source
	said := make([][]*v1.Pod, 3)
	var all sync.WaitGroup
	for i := range said {
		all.Add(1)
		sources = append(sources, named{fmt.Sprintf("s%d", i), func(ctx context.Context, set func([]*v1.Pod)) error {
			defer all.Done()
			for n := range rounds {
				var pods []*v1.Pod
				for k := range n % 5 {
					pods = append(pods, testPod(fmt.Sprintf("%d-%d", k, (n+i)%7), fmt.Sprint("p", k+i), image(fmt.Sprint(n%3))))
				}
				said[i] = pods
				set(pods)
			}
			return nil
		}})
	}
	m, err := NewMux(MuxOptions{Sources: sources})
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

type named struct {
	name string
	run  func(ctx context.Context, set func([]*v1.Pod)) error
}

func (n named) Name() string                                            { return n.name }
func (n named) Run(ctx context.Context, set func(pods []*v1.Pod)) error { return n.run(ctx, set) }

// BenchmarkOneOfMany changes one pod of 5000.
func BenchmarkOneOfMany(b *testing.B) {
	pods := make([]*v1.Pod, 5000)
	for i := range pods {
		pods[i] = testPod(fmt.Sprint("uid-", i), fmt.Sprint("pod-", i), image("x"))
	}
	d := newDelivery([]Source{newScripted("file")})
	drain := func() {
		for len(d.batch) > 0 {
			d.advance()
		}
	}
	d.plan(map[int][]*v1.Pod{0: pods}, time.Now())
	drain()
	n := 0
	b.ReportAllocs()
	for b.Loop() {
		n++
		pods[n%len(pods)] = testPod(string(pods[n%len(pods)].UID), pods[n%len(pods)].Name, image(fmt.Sprint(n)))
		d.plan(map[int][]*v1.Pod{0: pods}, time.Now())
		drain()
	}
}

// BenchmarkLoad reads a manifest of common size.
func BenchmarkLoad(b *testing.B) {
	data := []byte(minimal + `    ports: [{containerPort: 80}]
    resources: {limits: {cpu: 1, memory: 1Gi}}
    livenessProbe: {httpGet: {port: 80}}
    env: [{name: A, value: b}, {name: C, value: d}]
    volumeMounts: [{name: e, mountPath: /e}]
  volumes: [{name: e, emptyDir: {}}]
`)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Load(data, loadOptions()); err != nil {
			b.Fatal(err)
		}
	}
}
