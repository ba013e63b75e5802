package cluster

import (
	"errors"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/internal/apitest"
	"github.com/kubeletkit/kubeletkit/podconfig/checkpoint"
	"github.com/kubeletkit/kubeletkit/podconfig/manifest"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// rebooted stops the node with the pods "runs", "stays" and "removed" in its checkpoint, and boots the machine. The pod
// "removed" was deleted by force meanwhile.
func (r *rig) rebooted(before bool) (at time.Time) {
	r.stop()
	r.change = func(config *Config, opts *kubeletkit.Options) {
		store, err := checkpoint.New(filepath.Join(r.root, "kept"), checkpoint.Options{})
		require.NoError(r, err)
		opts.Checkpoint, config.RestoreBeforeList = store, before
	}
	r.start()
	for _, name := range []string{"stays", "removed"} {
		pod := bound(name)
		manifest.SetDefaults(pod) // as the API server does
		r.api.Create(pod)
	}
	r.after(time.Minute)
	r.stop()
	r.api.Delete("default", "removed", new(int64))
	r.rt.Restart(fake.Reboot)
	return time.Now()
}

// starts returns how long after the time the instances of the pod were started that were started after it.
func (r *rig) starts(name string, at time.Time) (after []time.Duration) {
	for _, i := range r.rt.Instances(fake.Target{Pod: name}) {
		if !i.StartedAt.Before(at) {
			after = append(after, i.StartedAt.Sub(at))
		}
	}
	return after
}

// slowPods is an API server that answers each request about pods after the time.
func slowPods(d time.Duration) func(*apitest.Request) (*http.Response, error) {
	return func(req *apitest.Request) (*http.Response, error) {
		if req.Resource == "pods" {
			select {
			case <-time.After(d):
			case <-req.HTTP.Context().Done():
				return nil, req.HTTP.Context().Err()
			}
		}
		return nil, nil
	}
}

func TestRestoredPodsWaitForTheFirstList(t *testing.T) {
	onNode(t, func(r *rig) {
		booted := r.rebooted(false)
		r.api.Before(slowPods(40 * time.Second))
		static := bound("static")
		static.UID = "static"
		r.static.Set(static)
		r.start()
		r.after(30 * time.Second)
		assert.Len(r, r.rt.Running(fake.Target{}), 1, "only the static pod runs")
		r.after(12 * time.Second)
		assert.Len(r, r.rt.Running(fake.Target{Pod: "stays"}), 1, "at once when the list is there")
		r.after(time.Minute)
		assert.Empty(r, r.starts("removed", booted))
	})
}

func TestRestoredPodsDoNotWaitForAnAPIServerThatIsAway(t *testing.T) {
	refused := func(*apitest.Request) (*http.Response, error) { return nil, errors.New("connection refused") }
	unauthorized := answers(http.StatusUnauthorized, metav1.StatusReasonUnauthorized, all).before
	unavailable := answers(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, all).before
	for name, tc := range map[string]struct {
		server func(*apitest.Request) (*http.Response, error)
		before bool // Config.RestoreBeforeList
		within time.Duration
	}{
		"refused":           {server: refused, within: 3 * time.Second},
		"unauthorized":      {server: unauthorized, within: 3 * time.Second},
		"unavailable":       {server: unavailable, within: 3 * time.Second},
		"no answer":         {server: apitest.Hang, within: answerTime + 3*time.Second},
		"reachable, option": {server: slowPods(40 * time.Second), before: true, within: 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			onNode(t, func(r *rig) {
				booted := r.rebooted(tc.before)
				r.api.Before(tc.server)
				r.start()
				r.after(tc.within)
				for _, name := range []string{"stays", "removed"} {
					assert.Len(r, r.starts(name, booted), 1, name)
				}
				r.api.Before(nil)
				r.after(2 * time.Minute)
				assert.Len(r, r.rt.Running(fake.Target{Pod: "stays"}), 1)
				assert.Len(r, r.starts("stays", booted), 1)
				assert.Empty(r, r.rt.Running(fake.Target{Pod: "removed"}), "the list is there")
			})
		})
	}
}

// The API server is lost while the first list is under way.
func TestRestoredPodsStartWhenTheAPIServerIsLost(t *testing.T) {
	onNode(t, func(r *rig) {
		r.rebooted(false)
		r.api.Before(slowPods(time.Hour))
		r.start()
		r.after(20 * time.Second)
		assert.Empty(r, r.rt.Running(fake.Target{}))
		r.api.Before(apitest.Hang)
		r.after(2*answerTime + 2*time.Second)
		assert.Len(r, r.rt.Running(fake.Target{}), 2)
	})
}

// A restart of the agent alone, with a slow API server: what runs goes on, and what has ended waits.
func TestRunningPodsDoNotWaitForTheFirstList(t *testing.T) {
	onNode(t, func(r *rig) {
		r.rebooted(false)
		r.start()
		r.after(time.Minute)
		pod := bound("crashed")
		manifest.SetDefaults(pod)
		r.api.Create(pod)
		r.after(time.Minute)
		running := r.rt.Running(fake.Target{Pod: "stays"})
		require.Len(r, running, 1)
		r.stop()
		r.rt.Exit(fake.Target{Pod: "crashed"}, 1)
		r.api.Before(slowPods(40 * time.Second))
		r.start()
		r.after(30 * time.Second)
		assert.Equal(r, running, r.rt.Running(fake.Target{Pod: "stays"}))
		assert.Empty(r, r.rt.Running(fake.Target{Pod: "crashed"}))
		r.after(20 * time.Second)
		assert.Equal(r, running, r.rt.Running(fake.Target{Pod: "stays"}))
		assert.Len(r, r.rt.Running(fake.Target{Pod: "crashed"}), 1)
	})
}

// Another agent, such as a kubelet, has started a container while this one was away. It has no probe results of it, and
// its checkpoint has an older status than the API server.
func TestContainersOfAnotherAgentStayReady(t *testing.T) {
	onNode(t, func(r *rig) {
		kept := func(_ *Config, opts *kubeletkit.Options) {
			store, err := checkpoint.New(filepath.Join(r.root, "kept"), checkpoint.Options{})
			require.NoError(r, err)
			opts.Checkpoint = store
		}
		r.stop()
		r.change = kept
		r.start()
		pod := bound("probed")
		pod.Spec.Containers[0].ReadinessProbe = &v1.Probe{
			ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"true"}}}, InitialDelaySeconds: 5,
		}
		manifest.SetDefaults(pod) // as the API server does
		r.api.Create(pod)
		ready := func() bool {
			statuses := r.api.Get("default", "probed").Status.ContainerStatuses
			return len(statuses) == 1 && statuses[0].Ready
		}
		r.after(time.Minute)
		require.True(r, ready())
		r.stop()

		r.change = nil // the other agent
		r.start()
		r.rt.Exit(fake.Target{Pod: "probed"}, 1)
		r.after(2 * time.Minute)
		require.True(r, ready())
		require.Equal(r, int32(1), r.api.Get("default", "probed").Status.ContainerStatuses[0].RestartCount)
		r.stop()

		r.change = kept
		r.start()
		for range 300 {
			r.after(100 * time.Millisecond)
			require.True(r, ready())
		}
	})
}
