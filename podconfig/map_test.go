package podconfig_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// mapping drops pods that are away, and gives the others an image of the mapping.
type mapping struct {
	away  map[string]bool
	image string
	calls int
}

func (m *mapping) do(pod *v1.Pod) *v1.Pod {
	m.calls++
	if m.away[pod.Name] {
		return nil
	}
	mapped := pod.DeepCopy()
	mapped.Spec.Containers = []v1.Container{{Name: "c", Image: m.image}}
	return mapped
}

func TestMapPods(t *testing.T) {
	t.Parallel()
	for name, play := range map[string]func(r *rig, s *driven, m *mapping, mapped *podconfig.Mapped){
		"snapshots": func(r *rig, s *driven, m *mapping, mapped *podconfig.Mapped) {
			a, b := testPod("1", "a"), testPod("2", "away")
			s.do(func(sink podconfig.Sink) { sink.Set([]*v1.Pod{a, b, nil, testPod("3", "c")}) })
			assert.Equal(r.t, []string{"ADD broker a/1 c/3"}, r.read())
			s.do(func(sink podconfig.Sink) { sink.Set([]*v1.Pod{b, a}) })
			assert.Equal(r.t, []string{"REMOVE broker c/3"}, r.read())
			assert.Equal(r.t, 3, m.calls, "once for each pod")
			assert.True(r.t, r.mux.SourcesReady())
		},
		"deltas": func(r *rig, s *driven, m *mapping, mapped *podconfig.Mapped) {
			s.do(func(sink podconfig.Sink) { sink.Set([]*v1.Pod{testPod("1", "a"), testPod("2", "b")}) })
			r.read()
			s.do(func(sink podconfig.Sink) {
				sink.Apply(podconfig.Delta{Update: []*v1.Pod{testPod("3", "c"), testPod("2", "away"), testPod("2", "b"),
					testPod("2", "away"), nil}})
				remove(sink, "1", "9")
			})
			assert.Equal(r.t, []string{"REMOVE broker a/1 b/2", "ADD broker c/3"}, r.read())
			s.do(func(sink podconfig.Sink) { update(sink, testPod("4", "c"), testPod("5", "away")) })
			assert.Equal(r.t, []string{"REMOVE broker c/3", "ADD broker c/4"}, r.read())
			m.away["c"] = true
			s.do(func(sink podconfig.Sink) { update(sink, testPod("6", "c")) })
			assert.Equal(r.t, []string{"REMOVE broker c/4"}, r.read(), "a pod that is dropped takes its name, too")
			m.away = map[string]bool{}
			mapped.Refresh()
			assert.Equal(r.t, []string{"ADD broker away/5 c/6"}, r.read())
		},
		"names are exchanged": func(r *rig, s *driven, m *mapping, mapped *podconfig.Mapped) {
			s.do(func(sink podconfig.Sink) { sink.Set([]*v1.Pod{testPod("1", "a"), testPod("2", "b")}) })
			r.read()
			s.do(func(sink podconfig.Sink) { update(sink, testPod("1", "b"), testPod("2", "a")) })
			assert.Equal(r.t, []string{"REMOVE broker a/1 b/2", "ADD broker b/1 a/2"}, r.read())
			m.image = "new"
			mapped.Refresh()
			assert.Equal(r.t, []string{"UPDATE broker b/1 a/2"}, r.read())
		},
		"refresh": func(r *rig, s *driven, m *mapping, mapped *podconfig.Mapped) {
			mapped.Refresh()
			assert.Empty(r.t, r.read())
			s.do(func(sink podconfig.Sink) { sink.Set([]*v1.Pod{testPod("1", "a"), testPod("2", "away")}) })
			r.read()
			m.away = map[string]bool{"a": true}
			mapped.Refresh()
			mapped.Refresh()
			assert.Equal(r.t, []string{"REMOVE broker a/1", "ADD broker away/2"}, r.read())
		},
		"rejections": func(r *rig, s *driven, m *mapping, mapped *podconfig.Mapped) {
			s.do(func(sink podconfig.Sink) {
				assert.Equal(r.t, "node", sink.NodeName())
				sink.Reject(runtime.RefOf(testPod("1", "a")), errors.New("no pod"))
			})
			assert.Equal(r.t, []string{"no pod"}, r.rejected)
		},
		"a mapping that panics": func(r *rig, s *driven, m *mapping, mapped *podconfig.Mapped) {
			s.do(func(sink podconfig.Sink) { sink.Set([]*v1.Pod{testPod("1", "a")}) })
			r.read()
			m.away = nil
			m.calls = -1000
			mapped.Refresh()
			assert.Empty(r.t, r.read(), "the pod stays as it was")
			s.do(func(sink podconfig.Sink) { update(sink, testPod("2", "b")) })
			assert.Empty(r.t, r.read())
			assert.Equal(r.t, []string{"mapping it: panic: no image", "mapping it: panic: no image"}, r.rejected)
			m.calls = 0
			s.do(func(sink podconfig.Sink) { update(sink, testPod("2", "b")) })
			assert.Equal(r.t, []string{"ADD broker b/2"}, r.read())
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &driven{"broker", make(chan func(podconfig.Sink) error)}
				m := &mapping{away: map[string]bool{"away": true}, image: "x"}
				mapped := podconfig.MapPods(s, func(pod *v1.Pod) *v1.Pod {
					if m.calls < 0 {
						panic("no image")
					}
					return m.do(pod)
				})
				r := newRigWith(t, podconfig.Options{NodeName: "node", Sources: []podconfig.Source{mapped}})
				play(r, s, m, mapped)
				r.stop()
			})
		})
	}
}

// A source that is complete is mapped on.
func TestMapPodsOfACompleteSource(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &mapping{image: "x", away: map[string]bool{"a": true}}
		mapped := podconfig.MapPods(podconfig.NewStatic("static", testPod("1", "a")), m.do)
		r := newRigWith(t, podconfig.Options{Sources: []podconfig.Source{mapped}})
		assert.Equal(t, []string{"ADD static"}, r.read())
		m.away = nil
		mapped.Refresh()
		assert.Equal(t, []string{"ADD static a/1"}, r.read())
		r.stop()
	})
}

// Restored pods went through the mapping in the run of the agent before.
func TestMapPodsOfRestoredPods(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := &restorer{delay: time.Second}
		mapped := podconfig.MapPods(source, func(pod *v1.Pod) *v1.Pod {
			pod = pod.DeepCopy()
			pod.Labels = map[string]string{"mapped": strings.Repeat("x", len(pod.Labels["mapped"])+1)}
			return pod
		})
		assert.Equal(t, "file", mapped.Name())
		opts := restoring(testPod("1", "a", from("file")))
		opts.Sources = []podconfig.Source{mapped}
		m, err := podconfig.New(opts)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- m.Run(ctx) }()
		assert.Equal(t, podconfig.Restore, (<-m.Changes()).Op)
		add := <-m.Changes()
		assert.Equal(t, podconfig.Add, add.Op)
		assert.Empty(t, add.Pods, "it has not changed")
		mapped.Refresh()
		synctest.Wait()
		select {
		case c := <-m.Changes():
			assert.Fail(t, "a change", "%v", c)
		default:
		}
		cancel()
		require.NoError(t, <-done)
	})
}
