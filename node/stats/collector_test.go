package stats

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// node is a node with a runtime, as a collector sees it.
type node struct {
	lifecycle.NopNode
	runtime.Runtime // nil: a collector uses optional interfaces only
	pods            []*v1.Pod
	statuses        map[types.UID]*runtime.PodStatus

	volumes func(ctx context.Context, pod *v1.Pod) ([]statsv1alpha1.VolumeStats, error)

	calls atomic.Int64
	mu    sync.Mutex
	usage func(ctx context.Context) (runtime.Usage, error)
}

func (n *node) Pods() []*v1.Pod {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.pods
}

func (n *node) setPods(pods ...*v1.Pod) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pods = pods
}

func (n *node) NodeName() string { return "node" }

func (n *node) VolumeStats(ctx context.Context, pod *v1.Pod) ([]statsv1alpha1.VolumeStats, error) {
	if n.volumes == nil {
		return nil, nil
	}
	return n.volumes(ctx, pod)
}

func (n *node) RuntimeStatus(uid types.UID) (*runtime.PodStatus, bool) {
	s, ok := n.statuses[uid]
	return s, ok
}

func (n *node) ListUsage(ctx context.Context) (runtime.Usage, error) {
	n.calls.Add(1)
	n.mu.Lock()
	f := n.usage
	n.mu.Unlock()
	return f(ctx)
}

func (n *node) report(f func(ctx context.Context) (runtime.Usage, error)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.usage = f
}

func newNode() *node {
	return &node{statuses: map[types.UID]*runtime.PodStatus{}, usage: func(context.Context) (runtime.Usage,
		error) {
		return runtime.Usage{}, nil
	}}
}

// add adds a pod with containers that run, whose IDs are the UID, a dash and their names.
func (n *node) add(name string, uid types.UID, containers ...string) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: uid}}
	status := &runtime.PodStatus{PodRef: runtime.RefOf(pod),
		Sandboxes: []runtime.SandboxStatus{{Sandbox: runtime.Sandbox{ID: "sandbox-" + string(uid),
			State: runtime.SandboxReady, CreatedAt: time.Unix(100, 0)}}}}
	for _, c := range containers {
		pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Name: c})
		status.Containers = append(status.Containers, runtime.ContainerStatus{
			Container: runtime.Container{ID: runtime.ContainerID{Type: "fake", ID: string(uid) + "-" + c}, Name: c,
				State: runtime.ContainerRunning, CreatedAt: time.Unix(101, 0)},
			Image: "registry.example/" + c + ":1",
		})
	}
	n.pods, n.statuses[uid] = append(n.pods, pod), status
	return pod
}

func number(n uint64) *uint64 { return &n }

func cpuOf(id string, ns uint64, at time.Time) runtime.ContainerUsage {
	return runtime.ContainerUsage{ID: id, CPU: &statsv1alpha1.CPUStats{Time: metav1.NewTime(at),
		UsageCoreNanoSeconds: &ns}}
}

func collect(t *testing.T, n *node, opts Options) *Collector {
	t.Helper()
	opts.proc, opts.cgroup = "testdata/proc", "testdata/none"
	c, err := New(n, opts)
	require.NoError(t, err)
	require.NoError(t, c.Join(n))
	return c
}

func read(t *testing.T, c *Collector) *Reading {
	t.Helper()
	r, err := c.Read(t.Context())
	require.NoError(t, err)
	return r
}

func TestNew(t *testing.T) {
	_, err := New(nil, Options{RootDir: "a", PodLogsDir: "b"})
	for _, want := range []string{"runtime is required", `RootDir "a"`, `PodLogsDir "b"`} {
		require.ErrorContains(t, err, want)
	}
}

func TestOneReadingForAPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		c := collect(t, n, Options{Period: 5 * time.Second})
		time.Sleep(time.Hour)
		assert.Zero(t, n.calls.Load(), "nobody asks")
		n.report(func(ctx context.Context) (runtime.Usage, error) {
			time.Sleep(time.Second)
			return runtime.Usage{}, ctx.Err()
		})
		readings := make([]*Reading, 50)
		var all sync.WaitGroup
		for i := range readings {
			all.Go(func() { readings[i], _ = c.Read(t.Context()) })
		}
		all.Wait()
		for _, r := range readings {
			assert.Same(t, readings[0], r)
		}
		time.Sleep(3 * time.Second)
		assert.Same(t, readings[0], read(t, c))
		assert.EqualValues(t, 1, n.calls.Load())
		time.Sleep(time.Second)
		assert.NotSame(t, readings[0], read(t, c))
		assert.EqualValues(t, 2, n.calls.Load())
	})
}

func TestAReaderThatGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		c := collect(t, n, Options{})
		n.report(func(ctx context.Context) (runtime.Usage, error) {
			select {
			case <-time.After(2 * time.Second):
				return runtime.Usage{}, nil
			case <-ctx.Done():
				return runtime.Usage{}, ctx.Err()
			}
		})
		first, cancel := context.WithCancel(t.Context())
		short, stop := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer stop()
		var all sync.WaitGroup
		all.Go(func() {
			_, err := c.Read(first)
			assert.ErrorIs(t, err, context.Canceled)
		})
		synctest.Wait()
		all.Go(func() {
			r, err := c.Read(t.Context())
			if assert.NoError(t, err, "the reading of another is repeated") {
				assert.NoError(t, r.Err)
			}
		})
		all.Go(func() {
			_, err := c.Read(short)
			assert.ErrorIs(t, err, context.DeadlineExceeded)
		})
		synctest.Wait()
		time.Sleep(time.Second)
		cancel()
		all.Wait()
	})
}

func TestARuntimeThatNeverAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.add("web", "u", "main")
		c := collect(t, n, Options{})
		n.report(func(ctx context.Context) (runtime.Usage, error) {
			<-ctx.Done()
			return runtime.Usage{}, ctx.Err()
		})
		began := time.Now()
		r := read(t, c)
		assert.Equal(t, 10*time.Second, time.Since(began))
		require.ErrorIs(t, r.Err, context.DeadlineExceeded)
		assert.NotNil(t, r.Summary.Node.CPU, "the figures of the node are there")
		_, err := c.Summary(t.Context(), false)
		require.ErrorContains(t, err, "usage of the pods")

		n.report(func(context.Context) (runtime.Usage, error) { panic("no") })
		time.Sleep(5 * time.Second)
		require.ErrorContains(t, read(t, c).Err, "panic")
		n.report(func(context.Context) (runtime.Usage, error) {
			return runtime.Usage{Containers: []runtime.ContainerUsage{cpuOf("u-main", 5, time.Now())}}, nil
		})
		time.Sleep(5 * time.Second)
		r = read(t, c)
		require.NoError(t, r.Err)
		assert.EqualValues(t, 5, *r.Summary.Pods[0].Containers[0].CPU.UsageCoreNanoSeconds)
	})
}

func TestRates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.add("web", "u", "main")
		c := collect(t, n, Options{Period: time.Second})
		var used uint64
		n.report(func(context.Context) (runtime.Usage, error) {
			return runtime.Usage{Containers: []runtime.ContainerUsage{cpuOf("u-main", used, time.Now())}}, nil
		})
		rate := func() *uint64 { return read(t, c).Summary.Pods[0].Containers[0].CPU.UsageNanoCores }
		used = 1e9
		assert.Nil(t, rate(), "there is one sample")
		time.Sleep(2 * time.Second)
		used = 2e9
		assert.EqualValues(t, number(5e8), rate())
		assert.EqualValues(t, number(5e8), read(t, c).Summary.Pods[0].CPU.UsageNanoCores, "the pod is the sum")
		time.Sleep(2 * time.Second)
		used = 1e8
		assert.Nil(t, rate(), "the counter went back")
		time.Sleep(time.Second)
		used = 2e8
		assert.EqualValues(t, number(1e8), rate())
		report := n.usage
		n.report(func(context.Context) (runtime.Usage, error) { return runtime.Usage{}, errors.New("busy") })
		time.Sleep(time.Second)
		require.Error(t, read(t, c).Err)
		n.report(report)
		time.Sleep(time.Second)
		used = 4e8
		assert.EqualValues(t, number(1e8), rate(), "a reading that failed has forgotten nothing")
		n.pods = nil
		time.Sleep(time.Second)
		assert.Empty(t, read(t, c).Summary.Pods)
		assert.Len(t, c.rates, 1, "only that of the node is kept")
	})
}

// A runtime reports nothing in the name of a pod that it is not about, and nothing that cannot be
// true.
func TestAbsurdReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.add("web", "u", "main")
		c := collect(t, n, Options{})
		now := metav1.NewTime(time.Now())
		huge := number(math.MaxUint64)
		many := make([]statsv1alpha1.InterfaceStats, 5000)
		for i := range many {
			many[i] = statsv1alpha1.InterfaceStats{Name: string(rune('a' + i)), RxBytes: number(1)}
		}
		many[0].Name = "eth0\"} 1\nforged{x=\""
		n.report(func(context.Context) (runtime.Usage, error) {
			return runtime.Usage{
				Sandboxes: []runtime.SandboxUsage{
					{ID: "sandbox-u", CPU: &statsv1alpha1.CPUStats{Time: metav1.NewTime(now.Add(time.Hour)), UsageCoreNanoSeconds: huge, PSI: &statsv1alpha1.PSIStats{Some: statsv1alpha1.PSIData{Avg10: math.NaN()}}},
						Network:   &statsv1alpha1.NetworkStats{InterfaceStats: many[0], Interfaces: many},
						Processes: huge},
					{ID: "sandbox-other", Processes: number(1)},
				},
				Containers: []runtime.ContainerUsage{
					{ID: "u-main", Memory: &statsv1alpha1.MemoryStats{Time: now, WorkingSetBytes: number(7), UsageBytes: huge}, WritableLayer: &statsv1alpha1.FsStats{UsedBytes: huge}, Mountpoint: "../relative"},
					{ID: "u-main", Memory: &statsv1alpha1.MemoryStats{Time: now, WorkingSetBytes: number(8)}},
					{ID: "unknown", Memory: &statsv1alpha1.MemoryStats{Time: now, WorkingSetBytes: number(9)}},
				},
			}, nil
		})
		r := read(t, c)
		require.Len(t, r.Summary.Pods, 1)
		p := r.Summary.Pods[0]
		assert.Nil(t, p.CPU.UsageCoreNanoSeconds)
		assert.Nil(t, p.CPU.PSI)
		assert.Equal(t, r.Time, p.CPU.Time.Time)
		assert.Nil(t, p.ProcessStats)
		assert.Empty(t, p.Network.Name)
		assert.Len(t, p.Network.Interfaces, maxInterfaces)
		require.Len(t, p.Containers, 1)
		assert.EqualValues(t, 7, *p.Containers[0].Memory.WorkingSetBytes)
		assert.Nil(t, p.Containers[0].Memory.UsageBytes)
		assert.Nil(t, p.Containers[0].Rootfs.UsedBytes)
		data, err := c.Summary(t.Context(), false)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(data, &statsv1alpha1.Summary{}))
	})
}

func TestPodsOfOneName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		old := n.add("web", "old", "main")
		n.pods = nil
		n.add("web", "new", "main", "second")
		n.statuses["new"].Containers[1].State = runtime.ContainerExited
		gone := n.add("gone", "gone", "main")
		n.statuses[gone.UID].Containers[0].State = runtime.ContainerExited
		n.statuses[gone.UID].Sandboxes[0].State = runtime.SandboxNotReady
		n.add("a", "a", "main")
		n.pods = append(n.pods, old) // the desired ones are first
		r := read(t, collect(t, n, Options{}))
		var got []string
		for i, p := range r.Summary.Pods {
			got = append(got, p.PodRef.UID)
			assert.Equal(t, p.PodRef.UID == "old", r.Pods[i].Shadowed, p.PodRef.UID)
			assert.Len(t, p.Containers, 1)
		}
		assert.Equal(t, []string{"a", "new", "old"}, got)
	})
}

func TestSummaryOfCPUAndMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.add("web", "u", "main")
		n.report(func(context.Context) (runtime.Usage, error) {
			u := cpuOf("u-main", 5, time.Now())
			u.WritableLayer = &statsv1alpha1.FsStats{UsedBytes: number(1)}
			return runtime.Usage{Containers: []runtime.ContainerUsage{u}}, nil
		})
		c := collect(t, n, Options{RootDir: t.TempDir()})
		for _, only := range []bool{false, true} {
			data, err := c.Summary(t.Context(), only)
			require.NoError(t, err)
			again, err := c.Summary(t.Context(), only)
			require.NoError(t, err)
			assert.Same(t, &data[0], &again[0], "it is encoded once")
			var s statsv1alpha1.Summary
			require.NoError(t, json.Unmarshal(data, &s))
			assert.Equal(t, "node", s.Node.NodeName)
			assert.Equal(t, only, s.Node.Fs == nil)
			assert.Equal(t, only, s.Pods[0].Containers[0].Rootfs == nil)
			assert.EqualValues(t, 5, *s.Pods[0].Containers[0].CPU.UsageCoreNanoSeconds)
			assert.Equal(t, time.Unix(101, 0).UTC(), s.Pods[0].Containers[0].StartTime.UTC())
		}
	})
}

// unsupported is a runtime without figures.
func unsupported(context.Context) (runtime.Usage, error) {
	return runtime.Usage{}, errors.ErrUnsupported
}
