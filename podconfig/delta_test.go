package podconfig_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/podconfig"
)

func update(sink podconfig.Sink, pods ...*v1.Pod) { sink.Apply(podconfig.Delta{Update: pods}) }

func remove(sink podconfig.Sink, uids ...types.UID) { sink.Apply(podconfig.Delta{Remove: uids}) }

// driven is a source whose deliveries are functions of the test.
type driven struct {
	name  string
	calls chan func(podconfig.Sink) error
}

func (s *driven) Name() string { return s.name }

func (s *driven) Run(ctx context.Context, sink podconfig.Sink) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case call := <-s.calls:
			if err := call(sink); err != nil {
				return err
			}
		}
	}
}

func (s *driven) do(deliver func(podconfig.Sink)) {
	s.calls <- func(sink podconfig.Sink) error { deliver(sink); return nil }
	synctest.Wait()
}

func TestDeltas(t *testing.T) {
	t.Parallel()
	for name, play := range map[string]func(b *bench, s *driven){
		"all operations": func(b *bench, s *driven) {
			s.do(func(sink podconfig.Sink) {
				sink.Set([]*v1.Pod{testPod("1", "a"), testPod("2", "b"), testPod("3", "c")})
			})
			assert.Equal(b.t, []string{"ADD broker a/1 b/2 c/3"}, b.read())
			s.do(func(sink podconfig.Sink) {
				update(sink, testPod("4", "d"), testPod("1", "a", image("x")), nil, testPod("2", "b", deleted))
				remove(sink, "3", "nobody")
			})
			assert.Equal(b.t, []string{"REMOVE broker c/3", "ADD broker d/4", "UPDATE broker a/1", "DELETE broker b/2"}, b.read())
			s.do(func(sink podconfig.Sink) { update(sink, testPod("1", "a", image("x"), phase(v1.PodRunning))) })
			assert.Equal(b.t, []string{"RECONCILE broker a/1"}, b.read())
			s.do(func(sink podconfig.Sink) { update(sink, testPod("1", "a", image("x"), phase(v1.PodRunning))) })
			assert.Empty(b.t, b.read())
		},
		"only Set makes it seen": func(b *bench, s *driven) {
			s.do(func(sink podconfig.Sink) { update(sink, testPod("1", "a"), testPod("2", "b")) })
			assert.Equal(b.t, []string{"ADD broker a/1 b/2"}, b.read())
			assert.False(b.t, b.mux.AllSeen())
			s.do(func(sink podconfig.Sink) { sink.Set([]*v1.Pod{testPod("1", "a")}); update(sink, testPod("3", "c")) })
			assert.Equal(b.t, []string{"REMOVE broker b/2", "ADD broker c/3"}, b.read())
			assert.True(b.t, b.mux.AllSeen())
		},
		"they coalesce": func(b *bench, s *driven) {
			s.do(func(sink podconfig.Sink) {
				update(sink, testPod("9", "gone"))
				sink.Set(nil)
				for i := range 100 {
					update(sink, testPod("1", "a", image(fmt.Sprint(i))), testPod("2", "b"))
					remove(sink, "2")
				}
			})
			assert.Equal(b.t, []string{"ADD broker a/1"}, b.read())
		},
		"a name passes on": func(b *bench, s *driven) {
			s.do(func(sink podconfig.Sink) { sink.Set([]*v1.Pod{testPod("1", "a")}) })
			b.read()
			s.do(func(sink podconfig.Sink) { update(sink, testPod("2", "a")) })
			assert.Empty(b.t, b.read())
			require.Len(b.t, b.rejected, 1)
			assert.Contains(b.t, b.rejected[0], "pod default/a(1) of the same source has the same name")
			s.do(func(sink podconfig.Sink) { update(sink, testPod("2", "a", image("x"))) })
			s.do(func(sink podconfig.Sink) { remove(sink, "1") })
			assert.Equal(b.t, []string{"REMOVE broker a/1", "ADD broker a/2"}, b.read())
			assert.Len(b.t, b.rejected, 1, "reported once")
		},
		"a name passes on in one step": func(b *bench, s *driven) {
			s.do(func(sink podconfig.Sink) { sink.Set([]*v1.Pod{testPod("1", "a"), testPod("3", "c")}) })
			b.read()
			s.do(func(sink podconfig.Sink) {
				sink.Apply(podconfig.Delta{Update: []*v1.Pod{testPod("2", "a")}, Remove: []types.UID{"1"}})
			})
			assert.Equal(b.t, []string{"REMOVE broker a/1", "ADD broker a/2"}, b.read())
			s.do(func(sink podconfig.Sink) {
				sink.Apply(podconfig.Delta{Update: []*v1.Pod{testPod("3", "a"), testPod("2", "c")}, Remove: []types.UID{"3", "2"}})
			})
			assert.Equal(b.t, []string{"REMOVE broker c/3 a/2", "ADD broker a/3 c/2"}, b.read(), "a UID that is removed and updated is updated")
			assert.Empty(b.t, b.rejected)
		},
		"a pod gets another name": func(b *bench, s *driven) {
			s.do(func(sink podconfig.Sink) { sink.Set([]*v1.Pod{testPod("1", "a")}) })
			b.read()
			s.do(func(sink podconfig.Sink) { update(sink, testPod("1", "b")) })
			assert.Equal(b.t, []string{"REMOVE broker a/1", "ADD broker b/1"}, b.read())
		},
		"a snapshot again": func(b *bench, s *driven) {
			pods := []*v1.Pod{testPod("1", "a"), testPod("2", "b"), testPod("3", "c")}
			s.do(func(sink podconfig.Sink) { sink.Set(pods) })
			b.read()
			s.do(func(sink podconfig.Sink) { update(sink, testPod("1", "a", image("x"))); remove(sink, "2") })
			assert.Equal(b.t, []string{"REMOVE broker b/2", "UPDATE broker a/1"}, b.read())
			s.do(func(sink podconfig.Sink) { sink.Set(pods) })
			assert.Equal(b.t, []string{"ADD broker b/2", "UPDATE broker a/1"}, b.read(), "it replaces everything")
		},
		"no name, no UID": func(b *bench, s *driven) {
			s.do(func(sink podconfig.Sink) {
				sink.Set([]*v1.Pod{testPod("1", "a")})
				update(sink, testPod("", "b"), testPod("1", ""))
			})
			assert.Equal(b.t, []string{"ADD broker a/1"}, b.read())
			require.Len(b.t, b.rejected, 2)
			assert.Contains(b.t, b.rejected[0], "has no name, no namespace or no UID")
			assert.Contains(b.t, b.rejected[1], "has no name, no namespace or no UID")
		},
		"after a failure": func(b *bench, s *driven) {
			var late podconfig.Sink
			s.do(func(sink podconfig.Sink) { late = sink; sink.Set([]*v1.Pod{testPod("1", "a")}) })
			s.calls <- func(podconfig.Sink) error { return errors.New("connection lost") }
			time.Sleep(2 * time.Second)
			update(late, testPod("2", "b"))
			remove(late, "1")
			late.Set(nil)
			assert.Equal(b.t, []string{"ADD broker a/1"}, b.read(), "deliveries of that run are ignored")
			s.do(func(sink podconfig.Sink) { update(sink, testPod("3", "c")) })
			assert.Equal(b.t, []string{"ADD broker c/3"}, b.read(), "its pods stay")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &driven{"broker", make(chan func(podconfig.Sink) error)}
				b := newBenchOf(t, podconfig.Options{Sources: []podconfig.Source{s}})
				play(b, s)
				b.stop()
			})
		})
	}
}

func TestDeltasAfterRestore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &driven{"broker", make(chan func(podconfig.Sink) error)}
		opts := restoring(testPod("1", "a", from("broker")), testPod("2", "b", from("broker")), testPod("3", "c", from("broker")))
		opts.Sources = []podconfig.Source{s}
		b := newBenchOf(t, opts)
		assert.Equal(t, []string{"RESTORE broker a/1 b/2 c/3"}, b.read())
		s.do(func(sink podconfig.Sink) { remove(sink, "1"); update(sink, testPod("2", "b", image("x"))) })
		assert.Equal(t, []string{"REMOVE broker a/1", "UPDATE broker b/2"}, b.read())
		assert.False(t, b.mux.AllSeen(), "there was no snapshot")
		s.do(func(sink podconfig.Sink) { sink.Set([]*v1.Pod{testPod("2", "b", image("x"))}) })
		assert.Equal(t, []string{"REMOVE broker c/3"}, b.read())
		assert.True(t, b.mux.AllSeen())
		b.stop()
	})
}

// TestDeltasAlone runs a source of deltas without a mux.
func TestDeltasAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &driven{"broker", make(chan func(podconfig.Sink) error)}
		assert.Equal(t, "broker", s.Name())
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		done := make(chan error)
		var got [][]*v1.Pod
		go func() {
			done <- s.Run(ctx, podconfig.NewSnapshotSink("node", func(pods []*v1.Pod) { got = append(got, pods) }))
		}()
		s.do(func(sink podconfig.Sink) { update(sink, testPod("0", "early")) })
		assert.Empty(t, got, "there was no snapshot")
		s.do(func(sink podconfig.Sink) { sink.Set([]*v1.Pod{testPod("1", "a"), testPod("2", "b"), nil}) })
		s.do(func(sink podconfig.Sink) { update(sink, testPod("3", "c"), testPod("1", "z"), nil) })
		s.do(func(sink podconfig.Sink) { remove(sink, "2", "9") })
		var lines []string
		for _, pods := range got {
			line := ""
			for _, p := range pods {
				if p != nil {
					line += p.Name + " "
				}
			}
			lines = append(lines, line)
		}
		assert.Equal(t, []string{"a b ", "z b c ", "z c "}, lines)
		cancel()
		require.NoError(t, <-done)
	})
}
