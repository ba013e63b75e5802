package agent_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit"
	historyfake "github.com/kubeletkit/kubeletkit/history/fake"
	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
	"github.com/kubeletkit/kubeletkit/syncloop"
)

// One hook receives what all parts report, with repeats merged.
func TestEventsOfAllPartsGoToOneHook(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		last := map[string]runtime.Event{} // by pod and reason
		every := map[string]int{}
		rt := fake.New(fake.Options{})
		n := startNodeWith(t, dir, rt, func(o *kubeletkit.Options) {
			o.Admission.Limits = syncloop.Limits{MaxPods: 5}
			o.Observe.Event = func(e runtime.Event) {
				mu.Lock()
				defer mu.Unlock()
				last[e.Pod.Name+" "+e.Reason] = e
			}
			o.Observe.EveryEvent = func(e runtime.Event) {
				mu.Lock()
				defer mu.Unlock()
				assert.Zero(t, e.Count)
				every[e.Pod.Name+" "+e.Reason]++
				panic("a receiver that panics")
			}
		})
		defer n.stop(t)
		event := func(key string) runtime.Event {
			t.Helper()
			mu.Lock()
			defer mu.Unlock()
			assert.Contains(t, last, key)
			return last[key]
		}

		web, clash, volumes := makePod("web"), makePod("clash"), makePod("volumes")
		web.Spec.Containers[0].Ports = []v1.ContainerPort{{HostPort: 80, ContainerPort: 80}}
		clash.Spec.Containers[0].Ports = []v1.ContainerPort{{HostPort: 80, ContainerPort: 80}}
		testpod.Volumes(v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{NFS: &v1.NFSVolumeSource{}}})(volumes)
		twin := makePod("web")
		twin.UID = "uid-twin"
		n.source.Set(web, clash, volumes, twin)
		n.after(30 * time.Second)

		assert.Equal(t, "host port 80/TCP is used by pod default/web", event("clash NodePorts").Message)
		pulled := event("web Pulled")
		assert.Equal(t, "spec.containers{main}", pulled.FieldPath)
		assert.Equal(t, v1.EventTypeNormal, pulled.Type)
		assert.Equal(t, 1, pulled.Count)
		mount := event("volumes FailedMount")
		assert.Greater(t, mount.Count, 1, "repeats are merged")
		assert.True(t, mount.Last.After(mount.First))
		mu.Lock()
		assert.GreaterOrEqual(t, every["volumes FailedMount"], mount.Count, "each one")
		assert.Equal(t, 1, every["web Pulled"])
		mu.Unlock()
		assert.Equal(t, "FailedValidation", event("web FailedValidation").Reason)
		n.source.Set()
		n.after(30 * time.Second)
		assert.Equal(t, "Stopping container main", event("web Killing").Message)
	})
}

// An update under the same UID that does not act on what runs makes the pod anew if that is
// wanted, and else is an event.
func TestAnUpdateUnderTheSameUID(t *testing.T) {
	for name, recreate := range map[string]bool{"event": false, "recreate": true} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				rt := fake.New(fake.Options{})
				n := startNodeWith(t, dir, rt, func(o *kubeletkit.Options) { o.RecreateUpdated = recreate })
				defer n.stop(t)
				web := makePod("web")
				n.source.Set(web)
				n.after(5 * time.Second)
				updated := web.DeepCopy()
				updated.Spec.Containers[0].Command = []string{"serve"}
				n.source.Set(updated)
				after := n.after(30 * time.Second)["web"]
				assert.Equal(t, v1.PodRunning, after.Status.Phase)
				running := rt.Running(fake.Target{Pod: "web"})
				require.Len(t, running, 1)
				const changed = "spec.containers{main}.command"
				update := runtime.Record{Stage: runtime.StageDecided, Kind: runtime.KindUpdate,
					Source: "test", Message: changed}
				got := historyfake.Records(n.Parts().History.Entries("uid-web"), "web", runtime.KindUpdate,
					runtime.KindRecreate)
				if recreate {
					assert.Equal(t, uint32(1), running[0].Attempt)
					anew := update
					anew.Kind = runtime.KindRecreate
					assert.Equal(t, []runtime.Record{update, anew}, got)
				} else {
					assert.Equal(t, uint32(0), running[0].Attempt)
					update.Error = changed
					assert.Equal(t, []runtime.Record{update}, got)
				}
			})
		})
	}
}

// A hook that panics ends no goroutine of the agent, such as that of the loop.
func TestAnEventHookThatPanics(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		n := startNodeWith(t, dir, fake.New(fake.Options{}), func(o *kubeletkit.Options) {
			o.Admission.Limits = syncloop.Limits{MaxPods: 1}
			o.Observe.Event = func(e runtime.Event) { panic(e.Reason) }
		})
		defer n.stop(t)
		n.source.Set(makePod("web"), makePod("refused"))
		pods := n.after(5 * time.Second)
		assert.Equal(t, "OutOfpods", pods["refused"].Status.Reason)
		assert.Equal(t, v1.PodRunning, pods["web"].Status.Phase)
	})
}
