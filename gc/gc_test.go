package gc_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/gc"
	"github.com/kubeletkit/kubeletkit/runtime"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var now = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// container makes an instance that was created the given number of seconds ago.
func container(id, name, sandbox string, state runtime.ContainerState, age int) runtime.Container {
	return runtime.Container{ID: runtime.ContainerID{Type: "t", ID: id}, Name: name, SandboxID: sandbox, State: state,
		CreatedAt: now.Add(-time.Duration(age) * time.Second)}
}

func sandbox(id string, state runtime.SandboxState) runtime.Sandbox {
	return runtime.Sandbox{ID: id, State: state}
}

func ref(uid string) runtime.PodRef {
	return runtime.PodRef{UID: types.UID(uid), Namespace: "ns", Name: "pod-" + uid}
}

const (
	exited  = runtime.ContainerExited
	running = runtime.ContainerRunning
	created = runtime.ContainerCreated
	unknown = runtime.ContainerUnknown
)

func TestPlan(t *testing.T) {
	for _, tc := range []struct {
		name       string
		pod        runtime.Pod
		gone       bool
		policy     gc.Policy
		containers []string
		sandboxes  []string
	}{{
		name: "the newest dead instance of each container stays",
		pod: runtime.Pod{
			Sandboxes: []runtime.Sandbox{sandbox("s", runtime.SandboxReady)},
			Containers: []runtime.Container{
				container("a3", "a", "s", running, 1), container("a2", "a", "s", exited, 2),
				container("a1", "a", "s", exited, 3),
				container("b1", "b", "s", exited, 3), container("a0", "a", "s", exited, 4),
			},
		},
		containers: []string{"a1", "a0"},
	}, {
		name: "an old sandbox goes once it holds nothing",
		pod: runtime.Pod{
			Sandboxes: []runtime.Sandbox{sandbox("s2", runtime.SandboxReady), sandbox("s1", runtime.SandboxNotReady),
				sandbox("s0", runtime.SandboxNotReady)},
			Containers: []runtime.Container{
				container("a1", "a", "s2", running, 1), container("a0", "a", "s1", exited, 2),
				container("a00", "a", "s0", exited, 3),
			},
		},
		containers: []string{"a00"},
		sandboxes:  []string{"s0"},
	}, {
		name: "the newest sandbox stays, dead or not",
		pod: runtime.Pod{Sandboxes: []runtime.Sandbox{sandbox("s1", runtime.SandboxNotReady),
			sandbox("s0", runtime.SandboxNotReady)}},

		sandboxes: []string{"s0"},
	}, {
		name: "of a gone pod everything goes",
		gone: true,
		pod: runtime.Pod{
			Sandboxes: []runtime.Sandbox{sandbox("s1", runtime.SandboxNotReady)},
			Containers: []runtime.Container{container("a", "a", "s1", exited, 0),
				container("b", "b", "s1", created, 0)},
		},
		containers: []string{"a", "b"},
		sandboxes:  []string{"s1"},
	}, {
		name: "unless something of it runs",
		gone: true,
		pod: runtime.Pod{
			Sandboxes: []runtime.Sandbox{sandbox("s1", runtime.SandboxNotReady)},
			Containers: []runtime.Container{container("a", "a", "s1", exited, 0),
				container("b", "b", "s1", unknown, 0)},
		},
	}, {
		name:   "young ones stay where the policy says so",
		policy: gc.Policy{MinAge: 10 * time.Second, MaxPerContainer: -1},
		pod: runtime.Pod{
			Sandboxes: []runtime.Sandbox{sandbox("s", runtime.SandboxReady)},
			Containers: []runtime.Container{container("a1", "a", "s", exited, 9),
				container("a0", "a", "s", exited, 10)},
		},
		containers: []string{"a0"},
	}, {
		name: "the clock was set back",
		pod: runtime.Pod{
			Sandboxes: []runtime.Sandbox{sandbox("s", runtime.SandboxReady)},
			Containers: []runtime.Container{container("a1", "a", "s", exited, -3600),
				container("a0", "a", "s", exited, -7200)},
		},
		containers: []string{"a0"},
	}, {
		name:   "as many stay as the policy says",
		policy: gc.Policy{MaxPerContainer: 2},
		pod: runtime.Pod{
			Sandboxes: []runtime.Sandbox{sandbox("s", runtime.SandboxReady)},
			Containers: []runtime.Container{container("a2", "a", "s", exited, 1), container("a1", "a", "s", exited, 2),
				container("a0", "a", "s", exited, 3)},
		},
		containers: []string{"a0"},
	}, {
		name: "what was created may still be started",
		pod: runtime.Pod{Containers: []runtime.Container{container("a1", "a", "s", created, 1),
			container("b0", "b", "s", created, 2)}},
	}, {
		name: "unless there is a newer instance: an agent ended before it was started",
		pod: runtime.Pod{Containers: []runtime.Container{container("a2", "a", "s", running, 1),
			container("a1", "a", "s", created, 2), container("a0", "a", "s", exited, 3)}},
		containers: []string{"a1"},
	}} {
		t.Run(tc.name, func(t *testing.T) {
			tc.pod.PodRef = ref("u")
			got := gc.Plan(gc.Input{Pods: []gc.Pod{{Pod: &tc.pod, Gone: tc.gone}}, Policy: tc.policy, Now: now})
			var containers, sandboxes []string
			for _, r := range got.Containers {
				containers = append(containers, r.ID.ID)
			}
			for _, r := range got.Sandboxes {
				sandboxes = append(sandboxes, r.ID)
			}
			assert.Equal(t, tc.containers, containers, "containers")
			assert.Equal(t, tc.sandboxes, sandboxes, "sandboxes")
		})
	}
}

// The limit of the whole node, as kubelet's --maximum-dead-containers: each container has an equal share, at least one
// instance, and then the oldest go.
func TestPlanOfTheWholeNode(t *testing.T) {
	crashing := func(uid, name string, ages ...int) *runtime.Pod {
		pod := &runtime.Pod{PodRef: ref(uid), Sandboxes: []runtime.Sandbox{sandbox("s-"+uid, runtime.SandboxReady)},
			Containers: []runtime.Container{container(uid+name+"-runs", name, "s-"+uid, running, 0)}}
		for _, age := range ages {
			pod.Containers = append(pod.Containers,
				container(fmt.Sprint(uid, name, age), name, "s-"+uid, exited, age))
		}
		return pod
	}
	old := crashing("e", "x", 9)
	old.Sandboxes = append(old.Sandboxes, sandbox("s-old", runtime.SandboxNotReady))
	old.Containers[1].SandboxID = "s-old"
	for _, tc := range []struct {
		name      string
		pods      []*runtime.Pod
		gone      types.UID
		policy    gc.Policy
		want      []string
		sandboxes []string
	}{
		{"no limit", []*runtime.Pod{crashing("a", "x", 1, 2, 3)}, "", gc.Policy{MaxPerContainer: 5}, nil, nil},
		{"at the limit", []*runtime.Pod{crashing("a", "x", 1, 2, 3)}, "", gc.Policy{MaxPerContainer: 5, MaxContainers: 3}, nil, nil},
		{"the limit of each container first", []*runtime.Pod{crashing("a", "x", 1, 2, 3)}, "",
			gc.Policy{MaxPerContainer: 1, MaxContainers: 2}, []string{"ax2", "ax3"}, nil},
		{"equal shares", []*runtime.Pod{crashing("a", "x", 1, 2, 3, 4), crashing("b", "y", 50)}, "",
			gc.Policy{MaxPerContainer: 5, MaxContainers: 4}, []string{"ax3", "ax4"}, nil},
		{"then the oldest", []*runtime.Pod{crashing("a", "x", 5, 6), crashing("b", "x", 50), crashing("c", "x", 3)}, "",
			gc.Policy{MaxPerContainer: 5, MaxContainers: 2}, []string{"ax6", "bx50"}, nil},
		{"none", []*runtime.Pod{crashing("a", "x", 1), crashing("b", "x", 2)}, "",
			gc.Policy{MaxContainers: -1}, []string{"ax1", "bx2"}, nil},
		{"those of gone pods do not count", []*runtime.Pod{gonePod("d"), crashing("a", "x", 1), crashing("b", "x", 2)}, "d",
			gc.Policy{MaxContainers: 2}, []string{"c-d"}, []string{"s-d"}},
		{"nor young ones", []*runtime.Pod{crashing("a", "x", 1), crashing("b", "x", 20), crashing("c", "x", 30)}, "",
			gc.Policy{MaxContainers: 1, MinAge: 10 * time.Second}, []string{"cx30"}, nil},
		{"a sandbox that holds nothing any more goes, too", []*runtime.Pod{old, crashing("a", "x", 1)}, "",
			gc.Policy{MaxContainers: 1}, []string{"ex9"}, []string{"s-old"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := gc.Input{Policy: tc.policy, Now: now}
			for _, pod := range tc.pods {
				in.Pods = append(in.Pods, gc.Pod{Pod: pod, Gone: pod.UID == tc.gone})
			}
			got := gc.Plan(in)
			var containers, sandboxes []string
			for _, r := range got.Containers {
				containers = append(containers, r.ID.ID)
			}
			for _, r := range got.Sandboxes {
				sandboxes = append(sandboxes, r.ID)
			}
			assert.ElementsMatch(t, tc.want, containers)
			assert.Equal(t, tc.sandboxes, sandboxes)
		})
	}
}

// holder is a runtime with dead containers and sandboxes.
type holder struct {
	mu      sync.Mutex
	pods    []*runtime.Pod
	removed []string
	failing map[string]error
	lists   int
}

func (h *holder) ListPods(context.Context) ([]*runtime.Pod, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lists++
	return h.pods, nil
}

func (h *holder) RemoveContainer(_ context.Context, id runtime.ContainerID) error {
	return h.remove(id.ID)
}
func (h *holder) RemoveSandbox(_ context.Context, id string) error { return h.remove(id) }

func (h *holder) remove(id string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.failing[id]; err != nil {
		return err
	}
	h.removed = append(h.removed, id)
	return nil
}

func (h *holder) listed() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lists
}

func gonePod(uid string) *runtime.Pod {
	return &runtime.Pod{PodRef: ref(uid), Sandboxes: []runtime.Sandbox{sandbox("s-"+uid, runtime.SandboxNotReady)},
		Containers: []runtime.Container{container("c-"+uid, "c", "s-"+uid, exited, 1)}}
}

func TestOneFailureDoesNotKeepTheOthers(t *testing.T) {
	h := &holder{pods: []*runtime.Pod{gonePod("u1"), gonePod("u2")},
		failing: map[string]error{"c-u1": errors.New("busy")}}
	c, err := gc.New(h, func(types.UID) bool { return true }, gc.Options{})
	require.NoError(t, err)
	err = c.Collect(t.Context())
	require.ErrorContains(t, err, "ns/pod-u1(u1)")
	require.ErrorContains(t, err, "busy")
	assert.ElementsMatch(t, []string{"c-u2", "s-u1", "s-u2"}, h.removed)
}

// A preview is what the next collection does, and changes nothing.
func TestPreview(t *testing.T) {
	h := &holder{pods: []*runtime.Pod{gonePod("u1"), gonePod("u2")}}
	c, err := gc.New(h, func(uid types.UID) bool { return uid == "u1" }, gc.Options{})
	require.NoError(t, err)
	p, err := c.Preview(t.Context())
	require.NoError(t, err)
	assert.Empty(t, h.removed)
	require.Len(t, p.Input.Pods, 2)
	require.Len(t, p.Removal.Sandboxes, 1)
	assert.Equal(t, "s-u1", p.Removal.Sandboxes[0].ID)
	require.NoError(t, c.Collect(t.Context()))
	assert.ElementsMatch(t, []string{"c-u1", "s-u1"}, h.removed)

	_, err = gc.Base{}.Preview(t.Context())
	require.ErrorIs(t, err, errors.ErrUnsupported)
}

func TestIdlePeriodsAreSkipped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &holder{}
		c, err := gc.New(h, func(types.UID) bool { return true }, gc.Options{})
		require.NoError(t, err)
		go func() { assert.NoError(t, c.Run(t.Context())) }()
		time.Sleep(2*time.Minute + time.Second)
		assert.Equal(t, 2, h.listed(), "nothing reports that something has happened")
		c.Changed()
		time.Sleep(time.Minute)
		assert.Equal(t, 3, h.listed())
		time.Sleep(10 * time.Minute)
		assert.Equal(t, 3, h.listed())
		time.Sleep(time.Minute)
		assert.Equal(t, 4, h.listed(), "a collection after ten periods in any case")
		c.Kick()
		synctest.Wait()
		assert.Equal(t, 5, h.listed())
		c.Changed()
		time.Sleep(time.Minute + time.Second)
		assert.Equal(t, 6, h.listed(), "something has happened")
		h.mu.Lock()
		h.pods, h.failing = []*runtime.Pod{gonePod("u1")}, map[string]error{"c-u1": errors.New("busy")}
		h.mu.Unlock()
		c.Kick()
		time.Sleep(8 * time.Second)
		assert.Equal(t, 10, h.listed(), "a failure is tried again after 1, 2 and 4 s")
	})
}

// The runtime removes a sandbox with its containers, in one call. Their logs must go too.
func TestContainersGoWithTheirSandbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logs := t.TempDir()
		for _, d := range []string{"ns_pod-u1_u1", "ns_pod-u2_u2"} {
			require.NoError(t, os.MkdirAll(filepath.Join(logs, d), 0o755))
		}
		another := gonePod("u2")
		another.Containers = append(another.Containers, container("old", "c", "of another sandbox", exited, 2))
		h := &holder{pods: []*runtime.Pod{gonePod("u1"), another, gonePod("without logs")}}
		var m measured
		c, err := gc.New(h, func(types.UID) bool { return true },
			gc.Options{LogsDir: logs, Observer: runtime.Observer{NonBlocking: true, Measure: m.Measure}})
		require.NoError(t, err)
		require.NoError(t, c.Collect(t.Context()))
		assert.ElementsMatch(t, []string{"old", "c-without logs", "s-u1", "s-u2", "s-without logs"}, h.removed)
		synctest.Wait()
		assert.Equal(t, 4, m.collections[0].Containers)
	})
}

// A pod may be desired again while a collection is planned: its logs stay, and the plan has it
// in one state.
func TestAPodComesBackDuringACollection(t *testing.T) {
	logs := t.TempDir()
	dir := filepath.Join(logs, "ns_pod-u1_u1")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	h, asked := &holder{pods: []*runtime.Pod{gonePod("u1")}}, 0
	gone := func(types.UID) bool { asked++; return asked == 1 }
	c, err := gc.New(h, gone, gc.Options{LogsDir: logs})
	require.NoError(t, err)
	require.NoError(t, c.Collect(t.Context()))
	assert.Equal(t, []string{"s-u1"}, h.removed, "one call for all of it")
	assert.DirExists(t, dir)
}

// Without space, the containers of pods that have ended go too, and logs of gone pods at once.
func TestDeleteUnused(t *testing.T) {
	logs := t.TempDir()
	for _, d := range []string{"ns_pod-gone_gone", "ns_pod-ended_ended", "ns_pod-runs_runs"} {
		require.NoError(t, os.MkdirAll(filepath.Join(logs, d), 0o755))
	}
	runs := &runtime.Pod{
		PodRef: ref("runs"), Sandboxes: []runtime.Sandbox{sandbox("s-runs", runtime.SandboxReady)},
		Containers: []runtime.Container{container("r3", "c", "s-runs", running, 1),
			container("r2", "c", "s-runs", exited, 2), container("r1", "c", "s-runs", exited, 3)},
	}
	h := &holder{pods: []*runtime.Pod{gonePod("gone"), gonePod("ended"), runs}}
	is := func(name types.UID) gc.Gone { return func(uid types.UID) bool { return uid == name } }
	c, err := gc.New(h, is("gone"), gc.Options{LogsDir: logs, Ended: is("ended"),
		Policy: gc.Policy{KeepLogs: time.Hour}})
	require.NoError(t, err)
	require.NoError(t, c.Collect(t.Context()))
	assert.NotContains(t, h.removed, "s-ended")
	assert.DirExists(t, filepath.Join(logs, "ns_pod-gone_gone"))

	h = &holder{pods: []*runtime.Pod{gonePod("gone"), gonePod("ended"), runs}}
	c, err = gc.New(h, is("gone"), gc.Options{LogsDir: logs, Ended: is("ended"),
		Policy: gc.Policy{KeepLogs: time.Hour}})
	require.NoError(t, err)
	require.NoError(t, c.DeleteUnused(t.Context()))
	assert.ElementsMatch(t, []string{"s-gone", "c-ended", "s-ended", "r1"}, h.removed)
	assert.NoDirExists(t, filepath.Join(logs, "ns_pod-gone_gone"))
	assert.DirExists(t, filepath.Join(logs, "ns_pod-ended_ended"), "its logs are read as long as it is desired")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	assert.NoError(t, gc.Base{}.DeleteUnused(ctx))
}

// A component removes what is unused while Run collects: the race detector finds no state that they share.
func TestDeleteUnusedWhileRunCollects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logs := t.TempDir()
		h := &holder{}
		c, err := gc.New(h, func(types.UID) bool { return true }, gc.Options{LogsDir: logs, Period: time.Millisecond,
			Policy: gc.Policy{KeepLogs: time.Hour}})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- c.Run(ctx) }()
		for i := range 20 {
			require.NoError(t, os.MkdirAll(filepath.Join(logs, fmt.Sprintf("ns_gone_u%d", i)), 0o755))
			c.Changed()
			require.NoError(t, c.DeleteUnused(ctx))
			time.Sleep(time.Millisecond)
		}
		cancel()
		require.NoError(t, <-done)
	})
}

func TestRunCollectsEachPeriodAndWhenKicked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &holder{}
		c, err := gc.New(h, func(types.UID) bool { return true }, gc.Options{})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- c.Run(ctx) }()
		time.Sleep(time.Minute - time.Second)
		assert.Zero(t, h.listed())
		c.Kick()
		c.Kick()
		synctest.Wait()
		assert.LessOrEqual(t, h.listed(), 2)
		before := h.listed()
		time.Sleep(time.Minute - time.Second)
		assert.Equal(t, before, h.listed(), "a period begins with the end of a collection")
		time.Sleep(2 * time.Second)
		assert.Equal(t, before+1, h.listed())
		cancel()
		require.NoError(t, <-done)
		err = c.Run(ctx)
		require.ErrorIs(t, err, runtime.ErrAlreadyRunning)
		require.ErrorContains(t, err, "gc: ")
	})
}

// measured keeps the collections that were reported.
type measured struct {
	collections []gc.Collection
}

func (m *measured) Measure(v runtime.Measurement) {
	m.collections = append(m.collections, v.(gc.Collection))
}

func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logs := t.TempDir()
		require.NoError(t, os.MkdirAll(filepath.Join(logs, "ns_x_u9", "main"), 0o755))
		h := &holder{pods: []*runtime.Pod{gonePod("u1"), gonePod("u2")},
			failing: map[string]error{"c-u1": errors.New("busy")}}
		var m measured
		c, err := gc.New(h, func(types.UID) bool { return true },
			gc.Options{Observer: runtime.Observer{NonBlocking: true, Measure: m.Measure}, LogsDir: logs})
		require.NoError(t, err)
		err = c.Collect(t.Context())
		synctest.Wait()
		require.Len(t, m.collections, 1)
		got := m.collections[0]
		assert.Equal(t, err, got.Err)
		assert.False(t, got.Ended.Before(got.Began))
		got.Began, got.Ended, got.Err = time.Time{}, time.Time{}, nil
		assert.Equal(t, gc.Collection{Containers: 1, Sandboxes: 2, LogDirs: 1, Failed: 1}, got)
	})
}

// Exactly what a plan has is removed, except sandboxes that are ready.
func TestAPlanOfOnesOwn(t *testing.T) {
	logs := t.TempDir()
	for _, d := range []string{"ns_x_u1", "ns_x_u2"} {
		require.NoError(t, os.MkdirAll(filepath.Join(logs, d), 0o755))
	}
	ready := gonePod("u2")
	ready.Sandboxes[0].State = runtime.SandboxReady
	h := &holder{pods: []*runtime.Pod{gonePod("u1"), ready}}
	gone := map[types.UID]bool{"u1": true}
	everything := func(in gc.Input) (out gc.Removal) {
		assert.Equal(t, []gc.LogDir{{Path: filepath.Join(logs, "ns_x_u1"), UID: "u1", Gone: true, GoneSince: in.Now},
			{Path: filepath.Join(logs, "ns_x_u2"), UID: "u2"}}, in.LogDirs)
		assert.Equal(t, 7, in.Policy.MaxPerContainer)
		assert.WithinDuration(t, time.Now(), in.Now, time.Minute)
		for _, p := range in.Pods {
			assert.Equal(t, gone[p.UID], p.Gone)
			out.Sandboxes = append(out.Sandboxes, gc.SandboxRemoval{Pod: p.PodRef, Sandbox: p.Sandboxes[0]})
		}
		out.LogDirs = in.LogDirs
		return out
	}
	c, err := gc.New(h, func(uid types.UID) bool { return gone[uid] }, gc.Options{Plan: everything, LogsDir: logs,
		Policy: gc.Policy{MaxPerContainer: 7}})
	require.NoError(t, err)
	require.ErrorContains(t, c.Collect(t.Context()), "pod ns/pod-u2(u2): sandbox s-u2 is ready")
	assert.Equal(t, []string{"s-u1"}, h.removed)
	assert.NoDirExists(t, filepath.Join(logs, "ns_x_u1"))
	assert.DirExists(t, filepath.Join(logs, "ns_x_u2"), "its pod is not gone")
}

func TestAPanicIsAFailedCollection(t *testing.T) {
	c, err := gc.New(&holder{}, func(types.UID) bool { return true },
		gc.Options{Plan: func(gc.Input) gc.Removal { panic("boom") }})
	require.NoError(t, err)
	require.ErrorAs(t, c.Collect(t.Context()), new(*runtime.PanicError))
}

// Pods that end one after the other do not delay the next try for the first.
func TestKicksDoNotUseUpTheBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &holder{pods: []*runtime.Pod{gonePod("u1")}, failing: map[string]error{"c-u1": errors.New("busy")}}
		c, err := gc.New(h, func(types.UID) bool { return true }, gc.Options{})
		require.NoError(t, err)
		go func() { assert.NoError(t, c.Run(t.Context())) }()
		for range 8 {
			c.Kick()
			time.Sleep(250 * time.Millisecond)
		}
		before := h.listed()
		time.Sleep(time.Second)
		assert.Equal(t, before+1, h.listed())
	})
}

// A removal that fails often succeeds a second later. If it does not, the delay grows, up
// to the period.
func TestFailuresAreRetriedSoonerThanThePeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &holder{pods: []*runtime.Pod{gonePod("u1")}, failing: map[string]error{"c-u1": errors.New("busy")}}
		c, err := gc.New(h, func(types.UID) bool { return true }, gc.Options{Period: 10 * time.Second})
		require.NoError(t, err)
		go func() { assert.NoError(t, c.Run(t.Context())) }()
		began := time.Now()
		c.Kick()
		for i, at := range []time.Duration{0, 1, 3, 7, 15, 25, 35} {
			time.Sleep(at*time.Second - time.Since(began) + time.Millisecond)
			assert.Equal(t, i+1, h.listed(), "after %d s", at)
		}
		h.mu.Lock()
		h.failing = nil
		h.mu.Unlock()
		time.Sleep(25 * time.Second)
		assert.Equal(t, 9, h.listed(), "when all is well, each period")
		h.mu.Lock()
		h.pods, h.failing = []*runtime.Pod{gonePod("u1")}, map[string]error{"c-u1": errors.New("busy")}
		h.mu.Unlock()
		time.Sleep(7 * time.Second)
		assert.Equal(t, 11, h.listed(), "a new failure is tried again soon")
	})
}

// A collection that fails has kubelet's event about the node.
func TestTheEventOfAFailedCollection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &holder{pods: []*runtime.Pod{gonePod("u1")}, failing: map[string]error{"c-u1": errors.New("busy")}}
		var events []runtime.Event
		c, err := gc.New(h, func(types.UID) bool { return true },
			gc.Options{Observer: runtime.Observer{NonBlocking: true,
				Event: func(e runtime.Event) { events = append(events, e) }}})
		require.NoError(t, err)
		go func() { assert.NoError(t, c.Run(t.Context())) }()
		c.Kick()
		time.Sleep(time.Millisecond)
		synctest.Wait()
		require.Len(t, events, 1)
		assert.Equal(t, "ContainerGCFailed", events[0].Reason)
		assert.Equal(t, "Warning", events[0].Type)
		assert.Contains(t, events[0].Message, "busy")
		assert.Zero(t, events[0].Pod, "it is about the node")
	})
}

func ExamplePlan() {
	pod := &runtime.Pod{
		PodRef:    runtime.PodRef{UID: "u1", Namespace: "default", Name: "web"},
		Sandboxes: []runtime.Sandbox{{ID: "s", State: runtime.SandboxReady}},
		Containers: []runtime.Container{
			{Name: "main", ID: runtime.ContainerID{Type: "containerd", ID: "c2"}, SandboxID: "s", State: runtime.ContainerExited},
			{Name: "main", ID: runtime.ContainerID{Type: "containerd", ID: "c1"}, SandboxID: "s", State: runtime.ContainerExited},
		},
	}
	for _, r := range gc.Plan(gc.Input{Pods: []gc.Pod{{Pod: pod}}, Now: time.Now()}).Containers {
		fmt.Println("remove", r.Name, r.ID)
	}
	// Output: remove main containerd://c1
}
