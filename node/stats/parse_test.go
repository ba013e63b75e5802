package stats

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

func TestNode(t *testing.T) {
	now := time.Unix(1795333333, 0)
	m, n := machine{proc: "testdata/proc", cgroups: cgroups{mount: "testdata/v2"}}.read(now)
	assert.Equal(t, 2, m.Cores)
	assert.EqualValues(t, 24683656<<10, m.Memory)
	assert.Equal(t, time.Unix(1795330575, 0), n.StartTime.Time)
	assert.EqualValues(t, 161398619*1000, n.IO.PSI.Full.Total)
	assert.InDelta(t, 96.22, n.CPU.PSI.Some.Avg10, 0.001)
	assert.EqualValues(t, 22081265860*1000, n.CPU.PSI.Some.Total)
	assert.EqualValues(t, 123456789000, *n.CPU.UsageCoreNanoSeconds, "that of the root cgroup")
	assert.EqualValues(t, (24683656-11534960)<<10, *n.Memory.UsageBytes)
	assert.Equal(t, *n.Memory.UsageBytes+11534960<<10, *n.Memory.AvailableBytes+*n.Memory.WorkingSetBytes)
	assert.Equal(t, "ens3", n.Network.Name)
	assert.EqualValues(t, 3000, *n.Network.TxBytes)
	require.Len(t, n.Network.Interfaces, 2, "not lo, nor those of pods")
	assert.Positive(t, *n.Rlimit.NumOfRunningProcesses)

	_, n = machine{proc: "testdata/proc", cgroups: cgroups{mount: "testdata/none"}}.read(now)
	assert.EqualValues(t, uint64(2966536+782927+1646331+30849)*1e7, *n.CPU.UsageCoreNanoSeconds, "that of /proc/stat")
	_, n = machine{proc: "testdata/none", cgroups: cgroups{mount: "testdata/none"}}.read(now)
	assert.Nil(t, n.CPU)
	assert.Nil(t, n.Memory)
	assert.Nil(t, n.Network)
}

func TestCgroups(t *testing.T) {
	v1, ok := cgroups{mount: "testdata/v1"}.read("kubepods/besteffort/podu")
	require.True(t, ok)
	assert.Equal(t, CgroupUsage{
		CPU: number(4161234567), UserCPU: number(2_500_000_000), SystemCPU: number(1_600_000_000),
		Periods: number(40), ThrottledPeriods: number(3), Throttled: number(123456789),
		Memory: number(10485760), WorkingSet: number(10485760 - 4096), RSS: number(8388608), Cache: number(2097152),
		MappedFile: number(1048576), Swap: number(0),
		MemoryLimit: number(67108864), PageFaults: number(5000), MajorFaults: number(7), Tasks: number(12),
		ReadBytes: number(4096 + 512), WrittenBytes: number(8192), Reads: number(2), Writes: number(3),
	}, v1)
	v2, ok := cgroups{mount: "testdata/v2"}.read("kubepods.slice/kubepods-podu.slice")
	require.True(t, ok)
	assert.Equal(t, CgroupUsage{
		CPU: number(4161234000), UserCPU: number(2_500_000_000), SystemCPU: number(1_661_234_000),
		Periods: number(40), ThrottledPeriods: number(3), Throttled: number(123456000),
		Memory: number(10485760), WorkingSet: number(10485760 - 4096), RSS: number(8388608), Cache: number(2097152),
		MappedFile: number(1048576), Swap: number(0),
		PageFaults: number(5000), MajorFaults: number(7), Tasks: number(12),
		ReadBytes: number(4608), WrittenBytes: number(8192), Reads: number(2), Writes: number(3),
		CPUPressure: &statsv1alpha1.PSIStats{Some: statsv1alpha1.PSIData{Avg10: 1.5, Avg60: 0.5, Avg300: 0.25,
			Total: 1000}, Full: statsv1alpha1.PSIData{Total: 2000}},
		MemoryPressure: &statsv1alpha1.PSIStats{}, IOPressure: nil,
	}, v2)
	_, ok = cgroups{mount: "testdata/v2"}.read("kubepods.slice/gone.slice")
	assert.False(t, ok, "it vanished")
	assert.Equal(t, map[string]string{"u-main": "kubepods/besteffort/podu/u-main",
		"sandbox-u": "kubepods/besteffort/podu/sandbox-u"}, cgroups{mount: "testdata/v1"}.containers("kubepods/besteffort/podu"))
	assert.Equal(t, map[string]string{"0123abc": "kubepods.slice/kubepods-podu.slice/cri-containerd-0123abc.scope"},
		cgroups{mount: "testdata/v2"}.containers("kubepods.slice/kubepods-podu.slice"))
}

// A runtime without figures: those of the cgroups, as far as the files are there.
func TestPodsFromCgroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.report(unsupported)
		n.add("web", "u", "main", "vanished")
		n.add("gone", "gone", "main")
		c, err := New(n,
			Options{PodCgroup: func(pod *v1.Pod) string { return "/kubepods/besteffort/pod" + string(pod.UID) },
				proc: "testdata/proc", cgroup: "testdata/v1"})
		require.NoError(t, err)
		require.NoError(t, c.Join(n))
		r := read(t, c)
		require.NoError(t, r.Err)
		require.Len(t, r.Summary.Pods, 2)
		assert.Nil(t, r.Summary.Pods[0].CPU)
		p := r.Summary.Pods[1]
		assert.EqualValues(t, 4161234567, *p.CPU.UsageCoreNanoSeconds)
		assert.EqualValues(t, 67108864-(10485760-4096), *p.Memory.AvailableBytes)
		assert.EqualValues(t, 12, *p.ProcessStats.ProcessCount)
		assert.Equal(t, "eth0", p.Network.Name)
		assert.EqualValues(t, 77, *p.Network.RxBytes)
		assert.EqualValues(t, 41, *p.Containers[0].CPU.UsageCoreNanoSeconds)
		assert.Nil(t, p.Containers[0].Memory, "its file is not there")
		assert.Nil(t, p.Containers[1].CPU)
		assert.NotNil(t, r.Pods[1].Cgroup)

		c, err = New(n, Options{proc: "testdata/proc"})
		require.NoError(t, err)
		require.NoError(t, c.Join(n))
		require.ErrorContains(t, read(t, c).Err, "Options.PodCgroup is nil")
	})
}

func FuzzParsers(f *testing.F) {
	for _, pattern := range []string{"testdata/proc/*", "testdata/proc/*/*", "testdata/v*/*/*/*/*/*",
		"testdata/v2/*/*/*"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			f.Fatal(err)
		}
		for _, name := range files {
			if data, err := os.ReadFile(name); err == nil {
				f.Add(string(data))
			}
		}
	}
	f.Add("8:0 Read 18446744073709551615\n8:1 Read 1\n8:0 rbytes=18446744073709551615 rbytes=1\n")
	f.Add("some avg10=NaN avg60=-1 avg300=1e309 total=18446744073709551615\nMemTotal: 18446744073709551615 kB\ncpu " +
		"1 2 3 4 5 6 7 281474976710656\n")
	f.Fuzz(func(t *testing.T, text string) {
		file := func(string, string) string { return text }
		for _, u := range []CgroupUsage{readV1(file), readV2(file)} {
			if u.Memory != nil && *u.WorkingSet > *u.Memory {
				t.Error("the working set is larger than the memory")
			}
			if u.CPUPressure != nil && sanePSI(u.CPUPressure) == nil && u.CPUPressure.Some.Total <= maxAmount &&
				u.CPUPressure.Full.Total <= maxAmount {
				t.Error("a pressure that cannot be true")
			}
			now := time.Unix(1, 0)
			_, _, _, _ = u.cpu(now), u.memory(now), u.swap(now), u.io(now)
		}
		if st, err := parseProcStat(text); err == nil && st.cpu < 0 {
			t.Error("negative CPU time")
		}
		for _, i := range parseNetDev(text) {
			if strings.Contains(i.Name, "\n") {
				t.Error("a name of two lines")
			}
		}
		_, _, _ = parseDefaultRoute(text), cores(text), line(text)
		if n, ok := parseTasks(text); ok && n < 0 {
			t.Error("negative tasks")
		}
	})
}

// Files that vanish while they are read are missing, each by itself.
func TestFilesThatVanish(t *testing.T) {
	for _, gone := range []string{"cpu.stat", "memory.current", "memory.stat", "memory.max",
		"pids.current", "io.stat"} {
		u := readV2(func(_, name string) string {
			if name == gone {
				return ""
			}
			data, _ := os.ReadFile(filepath.Join("testdata/v2/kubepods.slice/kubepods-podu.slice", name))
			return string(data)
		})
		now := time.Now()
		if gone == "memory.current" {
			assert.Nil(t, u.memory(now))
		} else {
			assert.NotNil(t, u.memory(now), gone)
		}
		assert.Equal(t, gone == "cpu.stat", u.cpu(now) == nil)
	}
}

// What the runtime uses of a file system has the inodes that are used of the whole file system, as with kubelet.
func TestInodesOfAPart(t *testing.T) {
	files := fileSystems{"/images": {Capacity: 100, Available: 40, Inodes: 10, InodesFree: 7}, "/unreadable": nil}
	got := files.part(runtime.FsUsage{Mountpoint: "/images", UsedBytes: 5}, time.Now())
	assert.Equal(t, uint64(3), *got.InodesUsed)
	assert.Equal(t, uint64(5), *got.UsedBytes)
	got = files.part(runtime.FsUsage{Mountpoint: "/unreadable", CapacityBytes: -1, AvailableBytes: -1},
		time.Now())
	assert.Nil(t, got.InodesUsed)
}
