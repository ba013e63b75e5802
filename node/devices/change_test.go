package devices_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/node/devices"
	"github.com/kubeletkit/kubeletkit/node/devices/fake"
	"github.com/kubeletkit/kubeletkit/node/placement/numa"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// A device that becomes unhealthy, or is gone, after the admission of a pod is exchanged before a container is made
// ready with it.
func TestUnhealthyBeforeTheStart(t *testing.T) {
	without := func(all []devices.Device, ids ...string) (out []devices.Device) {
		for _, d := range all {
			if !contains(ids, []string{d.ID}) {
				out = append(out, d)
			}
		}
		return out
	}
	unhealthy := func(all []devices.Device, ids ...string) (out []devices.Device) {
		for _, d := range all {
			d.Unhealthy = contains(ids, []string{d.ID})
			out = append(out, d)
		}
		return out
	}
	nodes := append(on(0, "a", "b"), on(1, "c", "d", "e")...)
	for name, tc := range map[string]struct {
		all  []devices.Device
		pod  []testpod.Option
		near numa.Nodes
		bad  []string
		has  map[string][]string // when it is admitted
		want map[string][]string // when it is ready
		err  string
	}{
		"one of two": {
			all: list("a", "b", "c"), pod: []testpod.Option{testpod.Container(wants("main", ports(2)))},
			bad: []string{"a"},
			has: map[string][]string{"main": {"a", "b"}}, want: map[string][]string{"main": {"b", "c"}},
		},
		"all": {
			all: list("a", "b", "c", "d"), pod: []testpod.Option{testpod.Container(wants("main", ports(2)))},
			bad: []string{"a", "b"},
			has: map[string][]string{"main": {"a", "b"}}, want: map[string][]string{"main": {"c", "d"}},
		},
		"near the nodes of the hint": {
			all: nodes, pod: []testpod.Option{testpod.Container(wants("main", ports(2)))}, near: numa.Of(1),
			bad: []string{"d"},
			has: map[string][]string{"main": {"c", "d"}}, want: map[string][]string{"main": {"c", "e"}},
		},
		"none is left on the nodes of the hint": {
			all: nodes, pod: []testpod.Option{testpod.Container(wants("main", ports(2)))}, near: numa.Of(0),
			bad: []string{"b"},
			has: map[string][]string{"main": {"a", "b"}}, want: map[string][]string{"main": {"a", "c"}},
		},
		"init container and those that use its devices again": {
			all: list("a", "b", "c", "d"), bad: []string{"a"},
			pod: []testpod.Option{testpod.Init(wants("init", ports(2))), testpod.Container(wants("main", ports(1)),
				wants("other", ports(2)))},
			has:  map[string][]string{"init": {"a", "b"}, "main": {"a"}, "other": {"b", "c"}},
			want: map[string][]string{"init": {"b", "d"}, "main": {"d"}, "other": {"b", "c"}},
		},
		"a container beside a sidecar": {
			all: list("a", "b", "c"), bad: []string{"b"},
			pod: []testpod.Option{testpod.Sidecar(wants("side", ports(1))),
				testpod.Container(wants("main", ports(1)))},
			has:  map[string][]string{"side": {"a"}, "main": {"b"}},
			want: map[string][]string{"side": {"a"}, "main": {"c"}},
		},
		"none is free": {
			all: list("a", "b"), pod: []testpod.Option{testpod.Container(wants("main", ports(2)))}, bad: []string{"a"},
			has: map[string][]string{"main": {"a", "b"}}, err: `waiting for the device "a" of example.com/port`,
		},
		"too few are free": {
			all: list("a", "b", "c"), pod: []testpod.Option{testpod.Container(wants("main", ports(2)))},
			bad: []string{"a", "b"},
			has: map[string][]string{"main": {"a", "b"}}, err: `waiting for the device "a" of example.com/port`,
		},
	} {
		for _, gone := range []bool{false, true} {
			title, change := name, unhealthy
			if gone {
				title, change = name+", gone before the start", without
			}
			t.Run(title, func(t *testing.T) {
				bubble(t, tc.all, func(t *testing.T, r *rig, p *fake.Provider, _ func() error) {
					pod := testpod.New("pod", tc.pod...)
					for _, c := range podspec.Containers(&pod.Spec) {
						require.NoError(t, r.Allocate(pod, c, numa.Hint{Nodes: tc.near}))
					}
					require.Equal(t, tc.has, r.ids(pod))
					p.Set(change(tc.all, tc.bad...)...)
					synctest.Wait()
					if tc.err != "" {
						require.ErrorContains(t, r.prepare(pod), tc.err)
						assert.Equal(t, tc.has, r.ids(pod))
						assert.Empty(t, allocations(p))
						p.Set(tc.all...)
						synctest.Wait()
						assert.Equal(t, []types.UID{pod.UID}, r.node.Syncs())
						require.NoError(t, r.prepare(pod))
						assert.Equal(t, tc.has, r.ids(pod))
						return
					}
					require.NoError(t, r.prepare(pod))
					assert.Equal(t, tc.want, r.ids(pod))
					r.restart()
					require.NoError(t, r.admit(pod))
					assert.Equal(t, tc.want, r.ids(pod), "as in the checkpoint")
				})
			})
		}
	}
}

// A pod that waits since no device is free is synced when another pod releases one: also one that was in the
// checkpoint, and ended while no agent ran.
func TestWaitingPodIsSyncedAfterARelease(t *testing.T) {
	for name, release := range map[string]func(t *testing.T, r *rig, other *v1.Pod){
		"ended":   func(_ *testing.T, r *rig, other *v1.Pod) { r.end(other) },
		"refused": func(_ *testing.T, r *rig, other *v1.Pod) { r.Refused(other) },
		"gone": func(t *testing.T, r *rig, other *v1.Pod) {
			require.NoError(t, r.Gone(t.Context(), lifecycle.GoneRequest{Pod: runtime.RefOf(other)}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, list("a", "b"), func(t *testing.T, r *rig, p *fake.Provider, _ func() error) {
				pod, other := podOf("pod", 1), podOf("other", 1)
				require.NoError(t, r.admit(pod))
				r.start(other)
				p.Set(append(sick("a"), list("b")...)...)
				synctest.Wait()
				require.ErrorContains(t, r.prepare(pod), `waiting for the device "a" of example.com/port`)
				require.Empty(t, r.node.Syncs())
				release(t, r, other)
				assert.Equal(t, []types.UID{pod.UID}, r.node.Syncs())
				require.NoError(t, r.prepare(pod))
				assert.Equal(t, map[string][]string{"main": {"b"}}, r.ids(pod))
				r.end(pod)
				assert.Equal(t, []types.UID{pod.UID}, r.node.Syncs(), "nobody waits")
			})
		})
	}
	t.Run("ended while no agent ran", func(t *testing.T) {
		bubble(t, list("a", "b", "c"), func(t *testing.T, r *rig, p *fake.Provider, stop func() error) {
			pod, other := podOf("pod", 1), podOf("other", 1)
			r.start(other)
			_ = stop()
			r.restart()
			stop = r.serve(p)
			defer func() { _ = stop() }()
			require.NoError(t, r.admit(pod))
			p.Set(append(sick("b", "c"), list("a")...)...)
			synctest.Wait()
			require.ErrorContains(t, r.prepare(pod), `waiting for the device "b" of example.com/port`)
			r.node.SetGone(other.UID)
			require.Error(t, r.admit(podOf("another", 3)))
			assert.Equal(t, []types.UID{pod.UID}, r.node.Syncs())
			require.NoError(t, r.prepare(pod))
			assert.Equal(t, map[string][]string{"main": {"a"}}, r.ids(pod))
		})
	})
}

// Containers that were made ready keep their devices. A later container that uses one of them again waits for it.
func TestUnhealthyAfterThePreparation(t *testing.T) {
	bubble(t, list("a", "b", "c"), func(t *testing.T, r *rig, p *fake.Provider, _ func() error) {
		pod := testpod.New("pod", testpod.Init(wants("init", ports(1))), testpod.Container(wants("main", ports(2))))
		require.NoError(t, r.admit(pod))
		p.OnAllocate = func(_ context.Context, req devices.Request) (runtime.ContainerEdits, error) {
			if req.Container.Name == "main" {
				return runtime.ContainerEdits{}, errors.New("broken")
			}
			return runtime.ContainerEdits{}, nil
		}
		require.ErrorContains(t, r.prepare(pod), "broken")
		p.OnAllocate = nil
		p.Set(append(sick("a"), list("b", "c")...)...)
		synctest.Wait()
		require.ErrorContains(t, r.prepare(pod), `waiting for the device "a" of example.com/port: it is unhealthy`)
		p.Set(append(list("a", "c"), sick("b")...)...)
		synctest.Wait()
		require.NoError(t, r.prepare(pod))
		assert.Equal(t, map[string][]string{"init": {"a"}, "main": {"a", "c"}}, r.ids(pod))
		p.Set(sick("a", "c")...)
		synctest.Wait()
		require.NoError(t, r.prepare(pod, "main"))
		require.NoError(t, r.prepare(pod))
		assert.Equal(t, map[string][]string{"init": {"a"}, "main": {"a", "c"}}, r.ids(pod))
	})
}

// What becomes unhealthy while the provider chooses is exchanged, too, and what the agent before it gave is not.
func TestUnhealthyWhileTheProviderChooses(t *testing.T) {
	bubble(t, list("a", "b", "c", "d"), func(t *testing.T, r *rig, p *fake.Provider, _ func() error) {
		pod := podOf("pod", 2)
		require.NoError(t, r.admit(pod))
		p.OnPrefer = func(context.Context, devices.PreferRequest) ([]string, error) {
			p.Set(append(sick("a", "c"), list("b", "d")...)...)
			synctest.Wait()
			return nil, nil
		}
		require.NoError(t, r.prepare(pod))
		assert.Equal(t, []string{"main[b d]"}, allocations(p))
		last := podOf("last", 1)
		require.ErrorContains(t, r.admit(last), "Requested: 1, Available: 0")
	})
}

// late is a provider that delivers nothing before its list is due.
type late struct {
	*fake.Provider
	due chan struct{}
}

func newLate(resource v1.ResourceName, list ...devices.Device) late {
	return late{fake.New(resource, list...), make(chan struct{})}
}

func (l late) Watch(ctx context.Context, update func([]devices.Device)) error {
	select {
	case <-l.due:
		return l.Provider.Watch(ctx, update)
	case <-ctx.Done():
		return nil
	}
}

// A provider is not used before it has delivered its list: until then it is the one before, and if that has ended,
// none.
func TestReplacedBeforeTheList(t *testing.T) {
	for _, fail := range []bool{false, true} {
		t.Run(fmt.Sprint("fail without provider ", fail), func(t *testing.T) {
			bubble(t, list("a", "b", "c", "d"), func(t *testing.T, r *rig, p *fake.Provider, stop func() error) {
				_ = stop()
				r.opts.FailWithoutProvider = fail
				r.restart()
				stop = r.serve(p)
				runs, admitted, comes := podOf("runs", 1), podOf("admitted", 1), podOf("comes", 1)
				r.start(runs)
				require.NoError(t, r.admit(admitted))
				changes := r.node.StatusChanges()
				next := newLate(port, list("a", "c", "d", "e")...)
				stopNext := r.serve(next)
				defer func() { _ = stopNext() }()
				r.start(podOf("meanwhile", 1))
				assert.Equal(t, []string{"main[a]", "main[c]"}, allocations(p))

				_ = stop()
				require.NoError(t, r.admit(comes))
				assert.Empty(t, r.ids(comes))
				assert.Equal(t, map[string][]numa.Hint{port: nil}, r.Hints(comes, nil))
				for _, pod := range []*v1.Pod{admitted, comes} {
					err := r.prepare(pod)
					require.ErrorContains(t, err, "waiting for the list of the devices of example.com/port")
					require.NotErrorAs(t, err, new(*runtime.TerminalError))
				}
				assert.Empty(t, next.Calls())
				require.NoError(t, r.prepare(runs), "it was prepared")
				assert.Equal(t, map[string][]string{"main": {"b"}}, r.ids(admitted))
				assert.Equal(t, [2]int64{4, 4}, r.counts(), "the node has them until the list comes")
				assert.Equal(t, changes, r.node.StatusChanges())
				assert.Empty(t, r.node.Syncs())

				close(next.due)
				synctest.Wait()
				assert.Equal(t, []types.UID{admitted.UID, comes.UID}, r.node.Syncs())
				require.NoError(t, r.prepare(admitted))
				require.NoError(t, r.prepare(comes))
				assert.Equal(t, []string{"main[d]", "main[e]"}, allocations(next.Provider), "b is gone")
			})
		})
	}
}

// A provider that follows another one, and ends before its list, leaves nothing to give.
func TestReplacedAndEndedBeforeTheList(t *testing.T) {
	bubble(t, list("a"), func(t *testing.T, r *rig, p *fake.Provider, stop func() error) {
		pod := podOf("pod", 1)
		require.NoError(t, r.admit(pod))
		stopNext := r.serve(newLate(port))
		_ = stop()
		assert.Equal(t, [2]int64{1, 1}, r.counts())
		_ = stopNext()
		assert.Equal(t, [2]int64{1, 0}, r.counts())
		require.ErrorContains(t, r.prepare(pod),
			"waiting for the provider of example.com/port, which is not there since")
		stop = r.serve(p)
		defer func() { _ = stop() }()
		require.NoError(t, r.prepare(pod))
	})
}

// A provider that is replaced while it chooses has made nothing ready.
func TestReplacedWhileItChooses(t *testing.T) {
	bubble(t, list("a", "b"), func(t *testing.T, r *rig, p *fake.Provider, _ func() error) {
		next := fake.New(port, list("b")...)
		var stopNext func() error
		defer func() { _ = stopNext() }()
		p.OnPrefer = func(context.Context, devices.PreferRequest) ([]string, error) {
			stopNext = r.serve(next)
			return []string{"a"}, nil
		}
		pod := podOf("pod", 1)
		require.NoError(t, r.admit(pod))
		require.ErrorContains(t, r.prepare(pod), "another provider of example.com/port has taken the place")
		require.NoError(t, r.prepare(pod))
		assert.Empty(t, allocations(p))
		assert.Equal(t, []string{"main[b]"}, allocations(next))
	})
}

func TestHasAll(t *testing.T) {
	bubble(t, list("a", "b"), func(t *testing.T, r *rig, p *fake.Provider, stop func() error) {
		pod, none := podOf("pod", 1), podOf("none", 0)
		holds := func(pod *v1.Pod) bool { return r.HasAll(pod, &pod.Spec.Containers[0]) }
		assert.False(t, holds(pod))
		assert.True(t, holds(none))
		assert.True(t, r.HasAll(pod, nil), "nothing is given to pods as a whole")
		done, err := r.AllocatePod(pod, numa.Hint{})
		require.NoError(t, err)
		assert.False(t, done)
		r.start(pod)
		assert.True(t, holds(pod))
		_ = stop()
		r.restart()
		assert.True(t, holds(pod), "of an earlier agent, without the provider")
		assert.False(t, holds(podOf("pod", 2)))
		r.end(pod)
		assert.False(t, holds(pod))
		away := r.path + ".away"
		require.NoError(t, os.Rename(r.path, away))
		require.NoError(t, os.Mkdir(r.path, 0o700))
		r.restart()
		assert.True(t, holds(podOf("other", 1)), "it waits for the checkpoint")
	})
}
