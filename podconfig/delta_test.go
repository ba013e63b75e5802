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

	"github.com/kubeletkit/kubeletkit/internal/testpod"
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
	for name, play := range map[string]func(r *rig, s *driven){
		"all operations": func(r *rig, s *driven) {
			s.do(func(sink podconfig.Sink) {
				sink.Set([]*v1.Pod{testPod("1", "a"), testPod("2", "b"), testPod("3", "c")})
			})
			assert.Equal(r.t, []string{"ADD broker a/1 b/2 c/3"}, r.read())
			s.do(func(sink podconfig.Sink) {
				update(sink, testPod("4", "d"), testPod("1", "a", image("x")), nil, testPod("2", "b", deleted))
				remove(sink, "3", "unknown")
			})
			assert.Equal(r.t, []string{"REMOVE broker c/3", "ADD broker d/4", "UPDATE broker a/1", "DELETE broker b/2"},
				r.read())
			s.do(
				func(sink podconfig.Sink) { update(sink, testPod("1", "a", image("x"), testpod.Phase(v1.PodRunning))) })
			assert.Equal(r.t, []string{"RECONCILE broker a/1"}, r.read())
			s.do(
				func(sink podconfig.Sink) { update(sink, testPod("1", "a", image("x"), testpod.Phase(v1.PodRunning))) })
			assert.Empty(r.t, r.read())
		},
		"only Set makes it seen": func(r *rig, s *driven) {
			s.do(func(sink podconfig.Sink) { update(sink, testPod("1", "a"), testPod("2", "b")) })
			assert.Equal(r.t, []string{"ADD broker a/1 b/2"}, r.read())
			assert.False(r.t, r.mux.SourcesReady())
			s.do(func(sink podconfig.Sink) { sink.Set([]*v1.Pod{testPod("1", "a")}); update(sink, testPod("3", "c")) })
			assert.Equal(r.t, []string{"REMOVE broker b/2", "ADD broker c/3"}, r.read())
			assert.True(r.t, r.mux.SourcesReady())
		},
		"they coalesce": func(r *rig, s *driven) {
			s.do(func(sink podconfig.Sink) {
				update(sink, testPod("9", "gone"))
				sink.Set(nil)
				for i := range 100 {
					update(sink, testPod("1", "a", image(fmt.Sprint(i))), testPod("2", "b"))
					remove(sink, "2")
				}
			})
			assert.Equal(r.t, []string{"ADD broker a/1"}, r.read())
		},
		"a pod changes and is as before": func(r *rig, s *driven) {
			before := testPod("1", "a")
			s.do(func(sink podconfig.Sink) { sink.Set([]*v1.Pod{before}) })
			r.read()
			s.do(func(sink podconfig.Sink) { update(sink, testPod("1", "a", image("x"))); update(sink, before) })
			assert.Empty(r.t, r.read())
			s.do(func(sink podconfig.Sink) { update(sink, testPod("1", "a", image("x"))) })
			assert.Equal(r.t, []string{"UPDATE broker a/1"}, r.read())
			s.do(func(sink podconfig.Sink) { update(sink, before) })
			assert.Equal(r.t, []string{"UPDATE broker a/1"}, r.read())
		},
		"a new UID takes the name": func(r *rig, s *driven) {
			s.do(func(sink podconfig.Sink) { sink.Set([]*v1.Pod{testPod("1", "a"), testPod("3", "c")}) })
			r.read()
			s.do(func(sink podconfig.Sink) { update(sink, testPod("2", "a")) })
			assert.Equal(r.t, []string{"REMOVE broker a/1", "ADD broker a/2"}, r.read())
			s.do(func(sink podconfig.Sink) { remove(sink, "1") })
			assert.Empty(r.t, r.read(), "it is removed already")
			s.do(func(sink podconfig.Sink) { update(sink, testPod("3", "a")) })
			assert.Equal(r.t, []string{"REMOVE broker c/3 a/2", "ADD broker a/3"}, r.read(),
				"also a UID that had another name")
			s.do(func(sink podconfig.Sink) { update(sink, testPod("4", "a"), testPod("5", "a")) })
			assert.Equal(r.t, []string{"REMOVE broker a/3", "ADD broker a/5"}, r.read(),
				"the last one of a delta counts")
			s.do(func(sink podconfig.Sink) { remove(sink, "5") })
			assert.Equal(r.t, []string{"REMOVE broker a/5"}, r.read(), "no earlier one waits")
			assert.Empty(r.t, r.rejected)
		},
		"a new UID takes the name of one that waits": func(r *rig, s *driven) {
			s.do(func(sink podconfig.Sink) {
				sink.Set([]*v1.Pod{testPod("1", "a"), testPod("2", "a"), testPod("3", "a")})
			})
			assert.Equal(r.t, []string{"ADD broker a/1"}, r.read())
			s.do(func(sink podconfig.Sink) { update(sink, testPod("2", "a")) })
			assert.Equal(r.t, []string{"REMOVE broker a/1", "ADD broker a/2"}, r.read())
			s.do(func(sink podconfig.Sink) { remove(sink, "2") })
			assert.Equal(r.t, []string{"REMOVE broker a/2"}, r.read())
			assert.Len(r.t, r.rejected, 2, "of the snapshot")
		},
		"no name is taken from another source": func(r *rig, s *driven) {
			require.NoError(r.t, r.mux.Add(podconfig.NewStatic("static", testPod("1", "a"))))
			r.read()
			s.do(func(sink podconfig.Sink) { update(sink, testPod("2", "a")) })
			assert.Empty(r.t, r.read())
			require.Len(r.t, r.rejected, 1)
			s.do(func(sink podconfig.Sink) { update(sink, testPod("3", "a")) })
			require.Len(r.t, r.rejected, 2)
			r.mux.Remove("static")
			assert.Equal(r.t, []string{"REMOVE static a/1", "ADD broker a/3"}, r.read())
		},
		"a name passes on in one step": func(r *rig, s *driven) {
			s.do(func(sink podconfig.Sink) { sink.Set([]*v1.Pod{testPod("1", "a"), testPod("3", "c")}) })
			r.read()
			s.do(func(sink podconfig.Sink) {
				sink.Apply(podconfig.Delta{Update: []*v1.Pod{testPod("2", "a")}, Remove: []types.UID{"1"}})
			})
			assert.Equal(r.t, []string{"REMOVE broker a/1", "ADD broker a/2"}, r.read())
			s.do(func(sink podconfig.Sink) {
				sink.Apply(podconfig.Delta{Update: []*v1.Pod{testPod("3", "a"), testPod("2", "c")},
					Remove: []types.UID{"3", "2"}})
			})
			assert.Equal(r.t, []string{"REMOVE broker c/3 a/2", "ADD broker a/3 c/2"}, r.read(),
				"a UID that is removed and updated is updated")
			assert.Empty(r.t, r.rejected)
		},
		"a pod gets another name": func(r *rig, s *driven) {
			s.do(func(sink podconfig.Sink) { sink.Set([]*v1.Pod{testPod("1", "a")}) })
			r.read()
			s.do(func(sink podconfig.Sink) { update(sink, testPod("1", "b")) })
			assert.Equal(r.t, []string{"REMOVE broker a/1", "ADD broker b/1"}, r.read())
		},
		"a snapshot again": func(r *rig, s *driven) {
			pods := []*v1.Pod{testPod("1", "a"), testPod("2", "b"), testPod("3", "c")}
			s.do(func(sink podconfig.Sink) { sink.Set(pods) })
			r.read()
			s.do(func(sink podconfig.Sink) { update(sink, testPod("1", "a", image("x"))); remove(sink, "2") })
			assert.Equal(r.t, []string{"REMOVE broker b/2", "UPDATE broker a/1"}, r.read())
			s.do(func(sink podconfig.Sink) { sink.Set(pods) })
			assert.Equal(r.t, []string{"ADD broker b/2", "UPDATE broker a/1"}, r.read(), "it replaces everything")
		},
		"no name, no UID": func(r *rig, s *driven) {
			s.do(func(sink podconfig.Sink) {
				sink.Set([]*v1.Pod{testPod("1", "a")})
				update(sink, testPod("", "b"), testPod("1", ""))
			})
			assert.Equal(r.t, []string{"ADD broker a/1"}, r.read())
			require.Len(r.t, r.rejected, 2)
			assert.Contains(r.t, r.rejected[0], "has no name, no namespace or no UID")
			assert.Contains(r.t, r.rejected[1], "has no name, no namespace or no UID")
		},
		"after a failure": func(r *rig, s *driven) {
			var late podconfig.Sink
			s.do(func(sink podconfig.Sink) { late = sink; sink.Set([]*v1.Pod{testPod("1", "a")}) })
			s.calls <- func(podconfig.Sink) error { return errors.New("connection lost") }
			time.Sleep(2 * time.Second)
			update(late, testPod("2", "b"))
			remove(late, "1")
			late.Set(nil)
			assert.Equal(r.t, []string{"ADD broker a/1"}, r.read(), "deliveries of that run are ignored")
			s.do(func(sink podconfig.Sink) { update(sink, testPod("3", "c")) })
			assert.Equal(r.t, []string{"ADD broker c/3"}, r.read(), "its pods stay")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &driven{"broker", make(chan func(podconfig.Sink) error)}
				r := newRigWith(t, podconfig.Options{Sources: []podconfig.Source{s}})
				play(r, s)
				r.stop()
			})
		})
	}
}

// A pod that is deleted at once, as by kubectl delete --force, is removed a moment after its
// grace period has become 0. Both may reach the reader in one batch.
func TestTheGracePeriodOfARemovedPod(t *testing.T) {
	t.Parallel()
	grace := func(seconds int64) func(*v1.Pod) {
		return func(pod *v1.Pod) { pod.DeletionGracePeriodSeconds = &seconds }
	}
	for name, deliver := range map[string]func(podconfig.Sink){
		"deltas": func(sink podconfig.Sink) {
			update(sink, testPod("1", "a", deleted, grace(0)))
			remove(sink, "1")
		},
		"snapshots": func(sink podconfig.Sink) {
			sink.Set([]*v1.Pod{testPod("1", "a", deleted, grace(0))})
			sink.Set(nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &driven{"broker", make(chan func(podconfig.Sink) error)}
				r := newRigWith(t, podconfig.Options{Sources: []podconfig.Source{s}})
				s.do(func(sink podconfig.Sink) { sink.Set([]*v1.Pod{testPod("1", "a", deleted, grace(600))}) })
				assert.Equal(t, []string{"ADD broker a/1"}, r.read())
				s.do(deliver)
				change := <-r.mux.Changes()
				require.Equal(t, podconfig.Remove, change.Op)
				assert.Zero(t, *change.Pods[0].DeletionGracePeriodSeconds)
				s.do(func(sink podconfig.Sink) { update(sink, testPod("1", "a")) })
				assert.Equal(t, []string{"ADD broker a/1"}, r.read())
				s.do(func(sink podconfig.Sink) { remove(sink, "1") })
				assert.Equal(t, []string{"REMOVE broker a/1"}, r.read())
				r.stop()
			})
		})
	}
}

// The same is so if the reader receives the pod only after its removal, because a batch has begun.
func TestTheGracePeriodOfAPodThatIsRemovedInABatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &driven{"broker", make(chan func(podconfig.Sink) error)}
		r := newRigWith(t, podconfig.Options{Sources: []podconfig.Source{s}})
		s.do(func(sink podconfig.Sink) { sink.Set([]*v1.Pod{testPod("1", "a")}) })
		r.read()
		s.do(func(sink podconfig.Sink) { remove(sink, "1"); update(sink, testPod("2", "b")) })
		require.Equal(t, podconfig.Remove, (<-r.mux.Changes()).Op)
		now := int64(0)
		s.do(func(sink podconfig.Sink) {
			update(sink, testPod("2", "b", deleted, func(pod *v1.Pod) { pod.DeletionGracePeriodSeconds = &now }))
			remove(sink, "2")
		})
		require.Equal(t, podconfig.Add, (<-r.mux.Changes()).Op)
		removal := <-r.mux.Changes()
		require.Equal(t, podconfig.Remove, removal.Op)
		require.NotNil(t, removal.Pods[0].DeletionGracePeriodSeconds)
		assert.Zero(t, *removal.Pods[0].DeletionGracePeriodSeconds)
		r.stop()
	})
}

func TestDeltasAfterRestore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &driven{"broker", make(chan func(podconfig.Sink) error)}
		opts := restoring(testPod("1", "a", from("broker")), testPod("2", "b", from("broker")),
			testPod("3", "c", from("broker")))
		opts.Sources = []podconfig.Source{s}
		r := newRigWith(t, opts)
		assert.Equal(t, []string{"RESTORE broker a/1 b/2 c/3"}, r.read())
		s.do(func(sink podconfig.Sink) { remove(sink, "1"); update(sink, testPod("2", "b", image("x"))) })
		assert.Equal(t, []string{"REMOVE broker a/1", "UPDATE broker b/2"}, r.read())
		assert.False(t, r.mux.SourcesReady(), "there was no snapshot")
		s.do(func(sink podconfig.Sink) { sink.Set([]*v1.Pod{testPod("2", "b", image("x"))}) })
		assert.Equal(t, []string{"REMOVE broker c/3"}, r.read())
		assert.True(t, r.mux.SourcesReady())
		r.stop()
	})
}
