package cluster

import (
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/internal/apitest"
	"github.com/kubeletkit/kubeletkit/podconfig/checkpoint"
	"github.com/kubeletkit/kubeletkit/podconfig/manifest"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// Without the API server, the agent starts, restarts what crashes and nothing else, and runs the
// pods again after a reboot. Ten minutes later the API server is back, and shows the truth within 5
// seconds.
func TestTruthAfterARebootDuringAnOutage(t *testing.T) {
	for _, o := range []fault{
		{name: "refused", before: func(*apitest.Request) (*http.Response, error) { return nil, errors.New("connection refused") }},
		answers(http.StatusServiceUnavailable, "", all),
		{name: "no answer, then a broken connection", atEnd: func(*apitest.Request) (*http.Response, error) { return nil, errors.New("connection reset by peer") }},
		{name: "no answer, then a late one", atEnd: func(*apitest.Request) (*http.Response, error) { return nil, nil }},
	} {
		t.Run(o.name, func(t *testing.T) { onNode(t, func(r *rig) { testRebootDuringAnOutage(r, o) }) })
	}
}

func testRebootDuringAnOutage(r *rig, o fault) {
	r.stop()
	r.change = func(_ *Config, opts *kubeletkit.Options) {
		store, err := checkpoint.New(filepath.Join(r.root, "kept"), checkpoint.Options{})
		require.NoError(r, err)
		opts.Checkpoint = store
	}
	r.start()
	for _, name := range []string{"stays", "crashes", "finishes", "finished", "deleted", "removed"} {
		pod := bound(name)
		if name == "finishes" || name == "finished" {
			pod.Spec.RestartPolicy = v1.RestartPolicyNever
		}
		manifest.SetDefaults(pod) // as an API server does; the checkpoint takes nothing else
		r.api.Create(pod)
	}
	exit := func(name string, code int32) { require.Equal(r, 1, r.rt.Exit(fake.Target{Pod: name}, code), name) }
	r.after(time.Minute)
	exit("finished", 1)
	r.after(time.Minute)

	end := r.beginFault(o)
	exit("crashes", 1)
	r.after(time.Minute)
	exit("finishes", 2)
	r.after(time.Minute)
	r.api.Delete("default", "deleted", nil)
	r.api.Delete("default", "removed", new(int64)) // by force
	instances := func() (ids []runtime.ContainerID) {
		for _, i := range r.rt.Instances(fake.Target{}) {
			ids = append(ids, i.ID)
		}
		return ids
	}
	before := instances()
	r.stop()
	r.start()
	r.after(time.Minute)
	assert.ElementsMatch(r, before, instances(), "nothing was restarted")
	exit("crashes", 3)
	r.after(time.Minute)
	assert.Len(r, r.rt.Running(fake.Target{Pod: "crashes"}), 1)

	r.stop()
	r.rt.Restart(fake.Reboot)
	require.Empty(r, r.rt.Running(fake.Target{}))
	r.start()
	r.after(time.Minute)
	for _, name := range []string{"stays", "crashes", "deleted", "removed"} {
		assert.Len(r, r.rt.Running(fake.Target{Pod: name}), 1, name)
	}
	for _, name := range []string{"finishes", "finished"} {
		assert.Empty(r, r.rt.Running(fake.Target{Pod: name}), name)
	}
	r.after(5 * time.Minute)

	end()
	back := time.Now()
	after := r.awaitTruth(back, func() (errs []error) {
		for _, name := range []string{"deleted", "removed"} {
			if r.api.Get("default", name) != nil || len(r.rt.Running(fake.Target{Pod: name})) > 0 {
				errs = append(errs, fmt.Errorf("%s is there", name))
			}
		}
		for name, code := range map[string]int32{"finishes": 2, "finished": 1} {
			pod := r.api.Get("default", name)
			if s := pod.Status.ContainerStatuses[0]; pod.Status.Phase != v1.PodFailed || s.State.Terminated == nil ||
				s.State.Terminated.ExitCode != code {
				errs = append(errs, fmt.Errorf("%s is %s: %+v", name, pod.Status.Phase, s.State))
			}
		}
		for _, name := range []string{"stays", "crashes"} {
			runs := r.rt.Running(fake.Target{Pod: name})
			if s := r.api.Get("default", name).Status.ContainerStatuses[0]; len(runs) != 1 ||
				s.ContainerID != runs[0].ID.String() || s.State.Running == nil {
				errs = append(errs, fmt.Errorf("%s has %d containers and the status %+v", name, len(runs), s))
			}
		}
		return errs
	})
	r.Logf("the truth is there after %v", after)
	assert.LessOrEqual(r, after, 5*time.Second)
}
