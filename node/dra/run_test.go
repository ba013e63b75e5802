package dra

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	nodefake "github.com/kubeletkit/kubeletkit/lifecycle/fake"
	"github.com/kubeletkit/kubeletkit/node/internal/goroutines"
	"github.com/kubeletkit/kubeletkit/runtime"
)

func quantity(s string) *resource.Quantity { return new(resource.MustParse(s)) }

// removed records removals of slices, with the seconds since the start.
type removed struct {
	mu    sync.Mutex
	start time.Time
	fails int
	calls []string
	// during is called in each removal, if it is not nil.
	during func()
}

func (r *removed) RemoveSlices(_ context.Context, driver string) error {
	r.mu.Lock()
	r.calls = append(r.calls, driver+" "+time.Since(r.start).String())
	during := r.during
	r.mu.Unlock()
	if during != nil {
		during()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fails > 0 {
		r.fails--
		return errTest
	}
	return nil
}

// took returns the calls since the last one, and begins to count the time anew.
func (r *removed) took() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	calls := r.calls
	r.calls, r.start = nil, time.Now()
	return calls
}

// running runs a test in virtual time with a manager that runs.
func running(t *testing.T, opts Options, test func(t *testing.T, m *Manager, api *apiServer)) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		api := &apiServer{}
		if s, ok := opts.Slices.(*removed); ok {
			s.took()
		}
		m := newManager(t, dir, api, opts)
		require.NoError(t, m.Join(nodefake.NewNode()))
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- m.Run(ctx) }()
		synctest.Wait()
		test(t, m, api)
		assert.ErrorIs(t, m.Run(t.Context()), runtime.ErrAlreadyRunning)
		stop()
		require.NoError(t, <-ended)
	})
}

// nodeOf returns the node of a manager that runs.
func nodeOf(m *Manager) *nodefake.Node { return m.node.(*nodefake.Node) }

func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// The slices of a driver are removed when no part of it was connected for 30 s. Those of all drivers are at the start.
func TestSlices(t *testing.T) {
	slices := &removed{fails: 2}
	running(t, Options{Slices: slices}, func(t *testing.T, m *Manager, _ *apiServer) {
		after(10 * time.Second)
		assert.Equal(t, []string{" 0s", " 1s", " 3s"}, slices.took(), "removed at the start, with a back-off")
		old := m.Add("d", hangs{})
		old.SetConnected(true)
		after(time.Hour)
		update := m.Add("d", hangs{})
		old.Remove()
		after(20 * time.Second)
		update.SetConnected(true)
		after(time.Hour)
		assert.Empty(t, slices.took(), "updated in time")

		update.SetConnected(false)
		after(29 * time.Second)
		update.Remove()
		after(time.Hour)
		assert.Equal(t, []string{"d 30s"}, slices.took(), "the delay begins with the first failure")

		m.Add("never", hangs{})
		after(time.Hour)
		assert.Equal(t, []string{"never 30s"}, slices.took())
	})
}

// A driver that comes back and is gone again while its slices are removed has published others: these are removed, too.
func TestSlicesOfADriverThatComesBack(t *testing.T) {
	slices := &removed{}
	running(t, Options{Slices: slices}, func(t *testing.T, m *Manager, _ *apiServer) {
		after(time.Second)
		e := m.Add("d", hangs{})
		slices.took()
		slow := make(chan struct{})
		slices.mu.Lock()
		slices.during = func() { <-slow }
		slices.mu.Unlock()
		after(time.Minute) // the removal has begun, and waits
		e.SetConnected(true)
		e.SetConnected(false)
		slices.took()
		close(slow)
		after(time.Hour)
		assert.Equal(t, []string{"d 30s"}, slices.took())
	})
}

// Without drivers and claims there is one goroutine; also when they are gone. What parts of drivers do ends with them,
// and with the manager.
func TestGoroutines(t *testing.T) {
	ended := []string{}
	part := func(e *Endpoint, name string) {
		assert.True(t, e.Go(func(ctx context.Context) {
			<-ctx.Done()
			ended = append(ended, name)
		}))
	}
	running(t, Options{Slices: &removed{}},
		func(t *testing.T, m *Manager, api *apiServer) {
			after(time.Second)
			count := func() int { return len(goroutines.In("node/dra")) }
			assert.Equal(t, 1, count())
			d := newDriverOf("d")
			e, other := m.Add("d", d), m.Add("other", d)
			e.SetConnected(true)
			part(e, "d")
			part(other, "other")
			a := podWith("a", "x")
			api.set("x", []string{"d"}, a)
			require.NoError(t, prepare(m, a, false))
			e.SetHealth([]DeviceHealth{{Pool: "pool", Name: "dev-x", Health: v1.ResourceHealthStatusHealthy}})
			after(time.Hour)
			assert.Equal(t, 3, count(), "those of the parts")
			require.NoError(t, end(m, a))
			e.Remove()
			after(time.Hour)
			assert.Equal(t, []string{"d"}, ended)
			assert.Equal(t, 2, count())
			part(e, "late")
			after(0)
			assert.Equal(t, []string{"d", "late"}, ended)
		})
	assert.Equal(t, []string{"d", "late", "other"}, ended)

	early, _, _ := withDriver(t, Options{})
	part(early.drivers["gpu.example.com"][0], "early")
	ctx, stop := context.WithCancel(t.Context())
	stop()
	require.NoError(t, early.Run(ctx))
	assert.Equal(t, "early", ended[3], "it waits for Run")
	assert.False(t, early.Add("d", hangs{}).Go(func(context.Context) { t.Error("the manager has stopped") }))
}

// Claims of a pod that is gone and has left nothing but the state are unprepared.
func TestPodsThatAreGone(t *testing.T) {
	running(t, Options{},
		func(t *testing.T, m *Manager, api *apiServer) {
			d := newDriverOf("d")
			e := m.Add("d", d)
			e.SetConnected(true)
			a, b := podWith("a", "x"), podWith("b", "y")
			api.set("x", []string{"d"}, a)
			api.set("y", []string{"d"}, b)
			require.NoError(t, prepare(m, a, false))
			require.NoError(t, prepare(m, b, false))
			nodeOf(m).SetGone(a.UID)
			e.Remove()
			after(2 * time.Minute)
			assert.True(t, d.has("x"))
			m.Add("d", d)
			after(time.Minute)
			assert.False(t, d.has("x"))
			assert.True(t, d.has("y"))
			assert.Len(t, onDisk(t, filepath.Dir(m.path(stateName))), 1)
		})
}

func TestHealth(t *testing.T) {
	running(t, Options{},
		func(t *testing.T, m *Manager, api *apiServer) {
			e := m.Add("d", newDriverOf("d"))
			a, b := podWith("a", "x"), podWith("b", "x", "y")
			a.Spec.Containers[0].Resources.Claims[0].Request = "req"
			api.set("x", []string{"d"}, a, b)
			api.set("y", []string{"d"}, b)
			require.NoError(t, prepare(m, a, false))
			require.NoError(t, prepare(m, b, false))
			health := func(pod *v1.Pod) (out []string) {
				for _, s := range m.AllocatedResources(pod, &pod.Spec.Containers[0]) {
					for _, r := range s.Resources {
						text := string(s.Name) + " " + string(r.ResourceID) + " " + string(r.Health)
						if r.Message != nil {
							text += " " + *r.Message
						}
						out = append(out, text)
					}
				}
				return out
			}
			took := func() []types.UID {
				defer nodeOf(m).Reset()
				return nodeOf(m).Refreshes()
			}
			assert.Equal(t, []string{"claim:x/req d=x Unknown"}, health(a))

			e.SetHealth([]DeviceHealth{{Pool: "pool", Name: "dev-x", Health: v1.ResourceHealthStatusHealthy},
				{Pool: "pool", Name: "other", Health: v1.ResourceHealthStatusHealthy}})
			assert.Equal(t, []types.UID{"uid-a", "uid-b"}, took())
			assert.Equal(t, []string{"claim:x d=x Healthy", "claim:y d=y Unknown"}, health(b))
			after(20 * time.Second)
			e.SetHealth([]DeviceHealth{{Pool: "pool", Name: "dev-x", Health: v1.ResourceHealthStatusHealthy}})
			assert.Empty(t, took(), "nothing has changed")
			e.SetHealth([]DeviceHealth{{Pool: "pool", Name: "dev-y", Health: v1.ResourceHealthStatusUnhealthy,
				Message: strings.Repeat("x", 2000), Timeout: time.Hour}})
			assert.Equal(t, []types.UID{"uid-b"}, took())
			assert.Equal(t, []string{"claim:x d=x Healthy", "claim:y d=y Unhealthy " + strings.Repeat("x", 1021) +
				"..."},
				health(b))
			after(30 * time.Second)
			assert.Equal(t, []types.UID{"uid-a", "uid-b"}, took(), "the report has expired")
			assert.Equal(t, []string{"claim:x/req d=x Unknown"}, health(a))

			newer := m.Add("d", newDriverOf("d"))
			newer.SetHealth([]DeviceHealth{{Pool: "pool", Name: "dev-x", Health: v1.ResourceHealthStatusUnhealthy}})
			assert.Equal(t, []string{"claim:x/req d=x Unhealthy"}, health(a))
			took()
			newer.Remove()
			newer.SetHealth([]DeviceHealth{{Pool: "pool", Name: "dev-x", Health: v1.ResourceHealthStatusUnhealthy}})
			assert.Equal(t, []types.UID{"uid-a", "uid-b"}, took())
			assert.Equal(t, []string{"claim:x/req d=x Unknown"}, health(a))
			assert.Nil(t, health(podWith("c")))
		})
}

// Of devices that a driver invents, no more than kubelet's are kept. Those that are known go on, and what has expired
// makes room.
func TestTooManyReports(t *testing.T) {
	running(t, Options{}, func(t *testing.T, m *Manager, _ *apiServer) {
		report := func(prefix string, n int) (list []DeviceHealth) {
			for i := range n {
				list = append(list, DeviceHealth{Pool: "pool", Name: fmt.Sprint(prefix, i),
					Health: v1.ResourceHealthStatusHealthy})
			}
			return list
		}
		health := func(name string) v1.ResourceHealthStatus {
			m.mu.Lock()
			defer m.mu.Unlock()
			return m.healthOf("d", Device{Pool: "pool", Name: name}, time.Now()).Health
		}
		e := m.Add("d", newDriverOf("d"))
		e.SetHealth(report("a", maxReports-1))
		e.SetHealth(report("b", 3))
		assert.Equal(t, v1.ResourceHealthStatusHealthy, health("b0"))
		assert.Equal(t, v1.ResourceHealthStatusUnknown, health("b1"))
		assert.Len(t, e.health, maxReports)
		e.SetHealth([]DeviceHealth{{Pool: "pool", Name: "b0", Health: v1.ResourceHealthStatusUnhealthy}})
		assert.Equal(t, v1.ResourceHealthStatusUnhealthy, health("b0"))
		after(defaultHealthTimeout)
		assert.Empty(t, e.health)
		e.SetHealth(report("b", 3))
		assert.Equal(t, v1.ResourceHealthStatusHealthy, health("b1"))
	})
}
