package agent_test

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/podconfig/checkpoint"
	"github.com/kubeletkit/kubeletkit/podconfig/manifest"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
	"github.com/kubeletkit/kubeletkit/status"
)

// endSink records the ends of pods that it accepts.
type endSink struct {
	status.SinkBase
	mu   sync.Mutex
	away bool
	gone []string
}

func (s *endSink) Deliver(context.Context, *v1.Pod, v1.PodStatus) (status.Result, error) {
	return status.Result{}, nil
}

func (s *endSink) PodGone(_ context.Context, pod runtime.PodRef, _ *v1.PodStatus) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away {
		return errors.New("no route to the control plane")
	}
	s.gone = append(s.gone, pod.Name)
	return nil
}

func (s *endSink) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	gone := s.gone
	s.gone = nil
	return gone
}

// With a checkpoint the sink receives an end that was due when an agent stopped from the
// next agent, although neither the runtime nor a source has the pod any more.
func TestDueEndsSurviveARestart(t *testing.T) {
	pod := func(name string) *v1.Pod {
		p := makePod(name)
		manifest.SetDefaults(p)
		p.Spec.NodeName = "node"
		return p
	}
	for name, tc := range map[string]struct {
		first func(n *node, sink *endSink)
		then  func(rt *fake.Runtime)
	}{
		"the sink was away": {func(n *node, sink *endSink) {
			sink.away = true
			n.source.Set(pod("kept"))
			n.after(time.Minute)
		}, func(*fake.Runtime) {}},
		"the pod was ending, and the machine was rebooted": {func(n *node, _ *endSink) {
			n.source.Set(pod("kept"))
			n.after(time.Second)
		}, func(rt *fake.Runtime) { rt.Restart(fake.Reboot) }},
		"the pod was removed while no agent ran, and the machine was rebooted": {func(*node, *endSink) {},
			func(rt *fake.Runtime) { rt.Restart(fake.Reboot) }},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				rt, sink := fake.New(fake.Options{}), &endSink{}
				rt.Script(fake.Target{Pod: "web"}, fake.Behavior{StopDelay: 10 * time.Second})
				life := func(during func(n *node)) {
					n := startNodeWith(t, dir, rt, func(o *kubeletkit.Options) {
						store, err := checkpoint.New(filepath.Join(dir, "kept"), checkpoint.Options{})
						require.NoError(t, err)
						o.Checkpoint, o.StatusSink = store, sink
						o.Override.Status = kubeletkit.Wrap(
							func(m status.Manager) status.Manager { return struct{ status.Manager }{m} })
					})
					during(n)
					n.stop(t)
				}
				life(func(n *node) {
					n.source.Set(pod("web"), pod("kept"))
					n.after(10 * time.Second)
					tc.first(n, sink)
				})
				require.Empty(t, sink.take())
				tc.then(rt)
				life(func(n *node) {
					sink.away = false
					n.after(time.Minute)
					assert.Empty(t, sink.take(), "its source may still deliver it")
					n.source.Set(pod("kept"))
					n.after(time.Minute)
					gone := sink.take()
					require.NotEmpty(t, gone)
					for _, name := range gone {
						assert.Equal(t, "web", name)
					}
				})
				life(func(n *node) {
					n.source.Set(pod("kept"))
					n.after(time.Minute)
					assert.Empty(t, sink.take(), "it was delivered")
				})
			})
		})
	}
}
