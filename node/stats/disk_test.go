package stats

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// volumes measures nothing and counts.
type volumes struct{ measured int }

func (v *volumes) VolumeStats(_ context.Context, pod *v1.Pod) ([]statsv1alpha1.VolumeStats, error) {
	v.measured++
	if pod.Name == "panics" {
		panic("no")
	}
	return []statsv1alpha1.VolumeStats{
		{Name: "scratch", FsStats: statsv1alpha1.FsStats{UsedBytes: number(1 << 20), InodesUsed: number(2)}},
		{Name: "data", PVCRef: &statsv1alpha1.PVCReference{Namespace: "default", Name: "data"}, FsStats: statsv1alpha1.FsStats{UsedBytes: number(1 << 30)}},
	}, errors.New("one is missing")
}

func TestVolumesAndLogs(t *testing.T) {
	root := t.TempDir()
	logs := filepath.Join(root, "logs", "default_web_u", "main")
	require.NoError(t, os.MkdirAll(logs, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(logs, "0.log"), []byte(strings.Repeat("x", 8192)), 0o600))
	require.NoError(t, os.MkdirAll(filepath.Join(root, "pods", "u"), 0o755))
	synctest.Test(t, func(t *testing.T) {
		n, v := newNode(), &volumes{}
		n.volumes = v.VolumeStats
		web := n.add("web", "u", "main")
		web.Spec.Volumes = []v1.Volume{{Name: "scratch",
			VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}}
		n.add("panics", "p", "main")
		c := collect(t, n, Options{RootDir: root, PodLogsDir: filepath.Join(root, "logs")})
		ctx, cancel := context.WithCancel(t.Context())
		var done sync.WaitGroup
		done.Go(func() { assert.NoError(t, c.Run(ctx)) })
		time.Sleep(time.Hour)
		synctest.Wait()
		assert.Zero(t, v.measured, "nobody asks")
		assert.Empty(t, c.Disk(), "it is not measured yet")
		time.Sleep(time.Second)
		p := read(t, c).Summary.Pods[1]
		require.Len(t, p.VolumeStats, 2)
		assert.GreaterOrEqual(t, *p.Containers[0].Logs.UsedBytes, uint64(8192))
		assert.EqualValues(t, 1<<20+*p.Containers[0].Logs.UsedBytes, *p.EphemeralStorage.UsedBytes,
			"the claim does not count")
		disk := c.Disk()
		require.Len(t, disk, 2)
		assert.Same(t, &disk[0], &c.Disk()[0], "nothing was measured in between")
		assert.Equal(t, []string{"panics", "web"}, []string{disk[0].Pod.Name, disk[1].Pod.Name},
			"the latest measurement is the first")
		assert.Len(t, disk[1].Claims, 1)
		assert.Contains(t, disk[1].Logs, "main")
		for range 10 {
			_, err := c.Summary(t.Context(), false)
			require.NoError(t, err)
			time.Sleep(5 * time.Second)
		}
		assert.Equal(t, 2, v.measured, "once a minute")
		synctest.Wait()
		time.Sleep(time.Minute)
		for range 10 { // of CPU and memory
			read(t, c)
			_, err := c.Summary(t.Context(), true)
			require.NoError(t, err)
			time.Sleep(5 * time.Second)
		}
		assert.Equal(t, 2, v.measured, "nobody asks for volumes and logs")
		n.setPods()
		c.Disk()
		time.Sleep(time.Second)
		assert.Empty(t, c.Disk(), "those of gone pods are dropped")
		cancel()
		done.Wait()
	})
}

// Files of earlier rotations count, compressed or not, and so does a compression under way; links and what lies in
// directories do not, as in kubelet.
func TestRotatedLogs(t *testing.T) {
	root := t.TempDir()
	for dir, files := range map[string]map[string]int{
		"main": {"0.log": 8 << 10, "0.log.20260102-030405": 16 << 10, "0.log.20260102-030404.gz": 32 << 10, "0.log.20260102-030403.tmp": 64 << 10, "1.log": 128 << 10},
		"side": {"0.log": 256 << 10}, "main/deeper": {"0.log": 512 << 10}, "other": {"0.log": 1 << 20},
	} {
		path := filepath.Join(root, "default_web_u", dir)
		require.NoError(t, os.MkdirAll(path, 0o755))
		for name, size := range files {
			require.NoError(t, os.WriteFile(filepath.Join(path, name), []byte(strings.Repeat("x", size)), 0o600))
		}
	}
	require.NoError(t, os.Symlink(filepath.Join(root, "default_web_u", "other", "0.log"),
		filepath.Join(root, "default_web_u", "main", "2.log")))
	n := newNode()
	c := collect(t, n, Options{RootDir: t.TempDir(), PodLogsDir: root})
	usage := c.disk.measure(t.Context(), n.add("web", "u", "main", "side"))
	assert.EqualValues(t, 5, usage.logs["main"].inodes)
	assert.InDelta(t, 248<<10, usage.logs["main"].bytes, 5*8<<10, "blocks are allocated")
	assert.EqualValues(t, 1, usage.logs["side"].inodes)
	assert.Len(t, usage.logs, 2)
	stats := statsv1alpha1.PodStats{Containers: []statsv1alpha1.ContainerStats{{Name: "main"}, {Name: "side"}}}
	c.disk.pods["u"] = usage
	c.disk.add(&stats, n.pods[0], fileSystems{}, usage.at)
	assert.Equal(t, usage.logs["main"].bytes, *stats.Containers[0].Logs.UsedBytes)
	assert.Equal(t, usage.logs["main"].bytes+usage.logs["side"].bytes, *stats.EphemeralStorage.UsedBytes)
}

// endless is a pod whose volumes take any time to be measured, and late one whose volumes take a minute.
type endless struct {
	mu sync.Mutex
	// began has the times of the measurements of each pod.
	began map[string][]time.Time
}

func (e *endless) VolumeStats(ctx context.Context, pod *v1.Pod) ([]statsv1alpha1.VolumeStats, error) {
	e.mu.Lock()
	e.began[pod.Name] = append(e.began[pod.Name], time.Now())
	e.mu.Unlock()
	var takes <-chan time.Time
	switch pod.Name {
	case "endless":
	case "late":
		takes = time.After(time.Minute)
	default:
		return []statsv1alpha1.VolumeStats{{Name: "v"}}, nil
	}
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-takes:
		return []statsv1alpha1.VolumeStats{{Name: "v"}}, nil
	}
}

// A container moves its files while they are measured, so that the measurement takes long, or does not end.
func TestASlowMeasurementHoldsUpNoOther(t *testing.T) {
	for _, name := range []string{"endless", "late"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, v := newNode(), &endless{began: map[string][]time.Time{}}
				n.volumes = v.VolumeStats
				n.add(name, "u1", "main")
				n.add("web", "u2", "main")
				c := collect(t, n, Options{RootDir: t.TempDir()})
				ctx, cancel := context.WithCancel(t.Context())
				var done sync.WaitGroup
				done.Go(func() { assert.NoError(t, c.Run(ctx)) })
				for range 3600 {
					_, err := c.Summary(t.Context(), false)
					require.NoError(t, err)
					time.Sleep(time.Second)
				}
				v.mu.Lock()
				assert.Greater(t, len(v.began["web"]), 50, "once a minute")
				if name == "late" {
					assert.Len(t, v.began["late"], 7, "given up once, and then a tenth of the time")
				}
				v.mu.Unlock()
				if name == "late" {
					assert.Len(t, read(t, c).Summary.Pods[0].VolumeStats, 1)
				}
				assert.Len(t, read(t, c).Summary.Pods[1].VolumeStats, 1)
				n.setPods()
				c.Disk()
				time.Sleep(time.Minute)
				assert.Empty(t, c.Disk())
				cancel()
				done.Wait()
			})
		})
	}
}

// The round that is under way when a slow measurement ends may have found the pod due before.
func TestASlowPodIsNotMeasuredTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, v := newNode(), &endless{began: map[string][]time.Time{}}
		n.volumes = v.VolumeStats
		pod := n.add("late", "u1", "main")
		d := newDisk(&Options{RootDir: t.TempDir(), DiskPeriod: time.Minute})
		d.node = n
		for _, times := range []int{1, 2} { // given up, and measured
			assert.Equal(t, []*v1.Pod{pod}, d.measureAll(t.Context(), []*v1.Pod{pod}))
			assert.Len(t, v.began["late"], times)
			for range 2 {
				d.measureSlow(t.Context(), pod)
				assert.Len(t, v.began["late"], times+1)
			}
			time.Sleep(share * time.Minute)
		}
		d.measureAll(t.Context(), nil)
		d.measureSlow(t.Context(), pod)
		assert.Len(t, v.began["late"], 3, "it is gone")
		assert.Empty(t, d.pods)
	})
}

// What a container writes to its hosts file and its termination log is on the disk of the node, too.
func TestFilesOfThePod(t *testing.T) {
	root := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(root, "pods", "u"), 0o755))
	for _, name := range []string{"etc-hosts", "termination-log.main.0badcafe"} {
		require.NoError(t, os.WriteFile(filepath.Join(root, "pods", "u", name), make([]byte, 1<<20), 0o600))
	}
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.add("web", "u", "main")
		c := collect(t, n, Options{RootDir: root})
		ctx, cancel := context.WithCancel(t.Context())
		var done sync.WaitGroup
		done.Go(func() { assert.NoError(t, c.Run(ctx)) })
		c.Disk()
		time.Sleep(time.Second)
		assert.GreaterOrEqual(t, *read(t, c).Summary.Pods[0].EphemeralStorage.UsedBytes, uint64(2<<20))
		cancel()
		done.Wait()
	})
}

// slow is a runtime that takes long for its metrics.
type slow struct {
	*node
	families []runtime.MetricFamily
	calls    atomic.Int64
	fails    atomic.Bool
}

func (s *slow) ListMetrics(ctx context.Context) ([]runtime.MetricFamily, error) {
	s.calls.Add(1)
	select {
	case <-time.After(9 * time.Second):
		if s.fails.Load() {
			return nil, errors.New("gone")
		}
		return s.families, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func TestMetricsOfARuntime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slow{node: newNode(), families: []runtime.MetricFamily{
			{Name: "container_memory_cache", Labels: []string{"a"}, Samples: []runtime.MetricSample{
				{LabelValues: []string{"x"}, Value: 1}, {LabelValues: []string{"\xff"}, Value: 1}, {LabelValues: nil, Value: 1},
				{LabelValues: []string{strings.Repeat("x", maxLabelValue+1)}, Value: 1}, {LabelValues: []string{"y"}, Value: -1},
			}},
			{Name: "container_x{", Samples: []runtime.MetricSample{{Value: 1}}},
			{Name: "container_y", Labels: []string{"a", "a"}, Samples: []runtime.MetricSample{{LabelValues: []string{"", ""}}}},
			{Name: "container_z", Labels: []string{"__name__"}, Samples: []runtime.MetricSample{{LabelValues: []string{""}}}},
		}}
		c, err := New(s, Options{proc: "testdata/proc", cgroup: "testdata/none"})
		require.NoError(t, err)
		require.NoError(t, c.Join(s))
		ctx, cancel := context.WithCancel(t.Context())
		var done sync.WaitGroup
		done.Go(func() { assert.NoError(t, c.Run(ctx)) })
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Zero(t, s.calls.Load())
		began := time.Now()
		assert.Empty(t, c.Extra())
		assert.Equal(t, began, time.Now(), "nobody waits for it")
		time.Sleep(10 * time.Second)
		require.Len(t, c.Extra(), 1)
		assert.Len(t, c.Extra()[0].Samples, 1)
		for range 600 {
			c.Extra()
			time.Sleep(time.Second)
		}
		assert.LessOrEqual(t, s.calls.Load(), int64(6), "at most a sixteenth of the time")
		time.Sleep(8 * time.Minute)
		assert.Empty(t, c.Extra(), "it is of the past")
		time.Sleep(10 * time.Second)
		require.Len(t, c.Extra(), 1)
		s.fails.Store(true)
		for range 160 {
			c.Extra()
			time.Sleep(time.Second)
		}
		assert.Empty(t, c.Extra())
		cancel()
		done.Wait()
	})
}

func TestTimesOfExtraSamples(t *testing.T) {
	now := time.Unix(1e9, 0)
	f := runtime.MetricFamily{Name: "container_x"}
	for _, at := range []time.Time{{}, now.Add(-time.Minute), now.Add(-time.Hour), now.Add(time.Hour),
		time.Unix(1<<60, 0)} {
		f.Samples = append(f.Samples, runtime.MetricSample{Time: at})
	}
	var got []time.Time
	for _, s := range saneFamilies([]runtime.MetricFamily{f}, newDeviceNames(machine{}), now)[0].Samples {
		got = append(got, s.Time)
	}
	assert.Equal(t, []time.Time{{}, now.Add(-time.Minute), now, now, now}, got)
}
