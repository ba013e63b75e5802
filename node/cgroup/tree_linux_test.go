package cgroup

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/opencontainers/cgroups/systemd"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/lifecycle"
	nodefake "github.com/kubeletkit/kubeletkit/lifecycle/fake"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// real is the kernel's tree below a root of its own. It needs root.
type real struct {
	*kernel
	m    *Manager
	pods *Pods
	v2   bool
}

// drivers are those that work on this machine.
func drivers() []Driver {
	if systemd.IsRunningSystemd() {
		return []Driver{Cgroupfs, Systemd}
	}
	return []Driver{Cgroupfs}
}

// onRealCgroups calls f with each driver.
func onRealCgroups(t *testing.T, opts ManagerOptions, f func(t *testing.T, r *real)) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	for i, driver := range drivers() {
		t.Run(string(driver), func(t *testing.T) {
			root := fmt.Sprintf("/kubeletkit%dt%d", os.Getpid(), i)
			pods, err := New(Options{Root: root, DefaultDriver: driver})
			require.NoError(t, err)
			m, err := NewManager(pods, opts)
			require.NoError(t, err)
			require.NoError(t, m.Join(&nodefake.Node{
				Log: funcr.New(func(prefix, args string) { t.Log(prefix, args) }, funcr.Options{})}))
			r := &real{kernel: m.opts.tree.(*kernel), m: m, pods: pods}
			if err := r.usable(driver); err != nil {
				t.Skip(err)
			}
			r.v2 = r.unified()
			t.Cleanup(func() {
				_, err := pods.RemoveGone(func(types.UID) bool { return true })
				assert.NoError(t, err)
				for _, class := range []string{"besteffort", "burstable", ""} {
					mgr, err := r.manager(driver, pods.above(driver, class), r.translate(Resources{}))
					if assert.NoError(t, err) {
						assert.NoError(t, mgr.Destroy())
					}
				}
				mgr, err := r.manager(driver, driver.path([]string{root[1:]}), r.translate(Resources{}))
				if assert.NoError(t, err) {
					assert.NoError(t, mgr.Destroy())
				}
			})
			f(t, r)
		})
	}
}

// read returns the content of a file of the cgroup: by its name in version 1 and 2.
func (r *real) read(t *testing.T, cgroup, controller, v1file, v2file string) string {
	t.Helper()
	dir, file := r.dirs(cgroup)[controller], v1file
	if r.v2 {
		dir, file = r.dirs(cgroup)[""], v2file
	}
	data, err := os.ReadFile(filepath.Join(dir, file))
	require.NoError(t, err)
	return strings.TrimSpace(string(data))
}

// limits returns weight, quota, memory and processes of a cgroup.
func (r *real) limits(t *testing.T, cgroup string) []string {
	t.Helper()
	quota := r.read(t, cgroup, "cpu", "cpu.cfs_quota_us", "cpu.max")
	quota, _, _ = strings.Cut(quota, " ")
	memory := r.read(t, cgroup, "memory", "memory.limit_in_bytes", "memory.max")
	if memory == "9223372036854771712" {
		memory = "max"
	}
	if quota == "-1" {
		quota = "max"
	}
	return []string{r.read(t, cgroup, "cpu", "cpu.shares", "cpu.weight"), quota, memory,
		r.read(t, cgroup, "pids", "pids.max", "pids.max")}
}

func (r *real) weight(shares uint64) string {
	if r.v2 {
		shares = Weight(shares)
	}
	return strconv.FormatUint(shares, 10)
}

// start starts a command in the cgroup of a pod, as a runtime does: one level below it.
func (r *real) start(t *testing.T, pod *v1.Pod, command ...string) (pid int) {
	t.Helper()
	cmd := exec.Command(command[0], command[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); _ = cmd.Wait() })
	for name, dir := range r.dirs(r.pods.Parent(pod)) {
		if name == "" && !r.v2 {
			continue
		}
		at := filepath.Join(dir, "container")
		require.NoError(t, os.MkdirAll(at, 0o755))
		if name == "cpuset" {
			for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
				data, err := os.ReadFile(filepath.Join(dir, file))
				require.NoError(t, err)
				require.NoError(t, os.WriteFile(filepath.Join(at, file), data, 0))
			}
		}
		require.NoError(t, os.WriteFile(filepath.Join(at, "cgroup.procs"), []byte(strconv.Itoa(cmd.Process.Pid)), 0),
			name)
	}
	return cmd.Process.Pid
}

// The cgroups of a pod, and above it, in the kernel: made, changed, and removed.
func TestRealCgroups(t *testing.T) {
	opts := ManagerOptions{
		Policy: Policy{PodPidsLimit: 100},
		Capacity: v1.ResourceList{v1.ResourceCPU: resource.MustParse("2"), v1.ResourceMemory: resource.MustParse("8Gi"),
			PIDs: resource.MustParse("5000")},
		Enforce: []Enforcement{EnforcePods}, KubeReserved: v1.ResourceList{
			v1.ResourceMemory: resource.MustParse("1Gi")},
	}
	onRealCgroups(t, opts, func(t *testing.T, r *real) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- r.m.Run(ctx) }()
		pod := burstable("1234-abcd", "200m", "100Mi")
		pod.Spec.Containers[0].Resources.Limits[v1.ResourceMemory] = resource.MustParse("1Gi")
		assert.Zero(t, prepare(t, r.m, pod, nil))
		at, driver := r.pods.Parent(pod), r.pods.current()
		assert.Equal(t, []string{r.weight(204), "20000", "1073741824", "100"}, r.limits(t, at))
		assert.Eventually(t, func() bool { return r.limits(t, r.pods.above(driver, "burstable"))[0] == r.weight(204) },
			20*time.Second, 50*time.Millisecond)
		assert.Equal(t, []string{r.weight(2048), "max", "7516192768", "5000"}, r.limits(t, r.pods.above(driver, "")))
		assert.Equal(t, r.weight(2), r.limits(t, r.pods.above(driver, "besteffort"))[0])
		cancel()
		require.NoError(t, <-done)

		larger := pod.DeepCopy()
		larger.Spec.Containers[0].Resources.Limits[v1.ResourceCPU] = resource.MustParse("400m")
		larger.Spec.Containers[0].Resources.Limits[v1.ResourceMemory] = resource.MustParse("2Gi")
		assert.Equal(t, lifecycle.PrepareResponse{Changed: true}, prepare(t, r.m, larger, nil))
		assert.Equal(t, []string{r.weight(204), "40000", "2147483648", "100"}, r.limits(t, at))
		assert.Equal(t, lifecycle.PrepareResponse{Changed: true}, prepare(t, r.m, pod, nil))
		assert.Equal(t, []string{r.weight(204), "20000", "1073741824", "100"}, r.limits(t, at))

		// Another agent takes over, and takes a limit away.
		next, err := NewManager(r.pods, ManagerOptions{})
		require.NoError(t, err)
		delete(pod.Spec.Containers[0].Resources.Limits, v1.ResourceMemory)
		assert.Equal(t, lifecycle.PrepareResponse{Changed: true}, prepare(t, next, pod, nil))
		assert.Equal(t, []string{r.weight(204), "20000", "max", "max"}, r.limits(t, at))

		uids, err := r.pods.Pods()
		require.NoError(t, err)
		assert.Equal(t, []types.UID{"1234-abcd"}, uids)
		pid := r.start(t, pod, "sleep", "300")
		found, err := next.RemoveGone(func(types.UID) bool { return true })
		require.NoError(t, err)
		require.ErrorContains(t, found["1234-abcd"], "a process is in it")
		require.NoError(t, syscall.Kill(pid, 0), "it lives")
		require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
		assert.Eventually(t, func() bool {
			found, err := next.RemoveGone(func(types.UID) bool { return true })
			return err == nil && found["1234-abcd"] == nil
		}, 20*time.Second, 50*time.Millisecond)
		assert.False(t, r.exists(at))
		for name, dir := range r.dirs(at) {
			assert.NoDirExists(t, dir, name)
		}
	})
}

// Memory of pods is protected on cgroup v2, and pods are slowed down below their limit; not by another agent after that
// which has the gate off.
func TestRealMemoryQoS(t *testing.T) {
	opts := ManagerOptions{MemoryQoS: true, Policy: Policy{MemoryReservation: true, MemoryThrottlingFactor: 0.5}}
	onRealCgroups(t, opts,
		func(t *testing.T, r *real) {
			if !r.v2 {
				t.Skip("needs cgroup v2")
			}
			prepare(t, r.m, burstable("b", "100m", "64Mi"), nil)
			g := burstable("g", "100m", "4Gi")
			require.Equal(t, v1.PodQOSGuaranteed, podspec.QOSClass(g))
			prepare(t, r.m, g, nil)
			require.NoError(t, r.m.updateQoS())
			driver := r.pods.current()
			assert.Equal(t, "67108864", r.read(t, r.pods.Parent(burstable("b", "100m", "64Mi")), "", "", "memory.low"))
			assert.Equal(t, "4294967296", r.read(t, r.pods.Parent(g), "", "", "memory.min"))
			assert.Equal(t, "67108864", r.read(t, r.pods.above(driver, "burstable"), "", "", "memory.low"))
			assert.Equal(t, "4362076160", r.read(t, r.pods.above(driver, ""), "", "", "memory.min"))
			assert.Equal(t, "67108864", r.read(t, r.pods.above(driver, ""), "", "", "memory.low"))
			own := whole(1, "200m", "100Mi")
			own.Spec.Resources.Requests = v1.ResourceList{v1.ResourceMemory: resource.MustParse("50Mi")}
			prepare(t, r.m, own, nil)
			assert.Equal(t, "78643200", r.read(t, r.pods.Parent(own), "", "", "memory.high"))
			require.NoError(t, r.m.updateQoS())

			opts.MemoryQoS = false
			next, err := NewManager(r.pods, opts)
			require.NoError(t, err)
			require.NoError(t, next.Join(&nodefake.Node{}))
			prepare(t, next, own, nil)
			assert.Equal(t, "max", r.read(t, r.pods.Parent(own), "", "", "memory.high"))
			require.NoError(t, next.updateQoS())
			for class, files := range map[string][]string{"": {"memory.min", "memory.low"},
				"burstable": {"memory.low"}} {
				for _, file := range files {
					assert.Equal(t, "0", r.read(t, r.pods.above(driver, class), "", "", file), class+file)
				}
			}
		})
}

// A pod with resources as a whole is resized, and its status has what the kernel has.
func TestRealResize(t *testing.T) {
	onRealCgroups(t, ManagerOptions{}, func(t *testing.T, r *real) {
		// The kernel has whole pages of memory, v2 other weights, and systemd hundredths of a CPU: the status has what
		// was requested.
		from, to := whole(1, "200m", "100M"), whole(2, "301m", "80M")
		assert.Zero(t, prepare(t, r.m, from, nil))
		at := r.pods.Parent(from)
		inForce := func(m *Manager, pod *v1.Pod) []int64 {
			got, err := m.Inspector(inspected{running(pod)}).InspectPod(t.Context(), runtime.RefOf(pod))
			require.NoError(t, err)
			l := got.Resources.Limits
			return []int64{got.Resources.Requests.Cpu().MilliValue(), l.Cpu().MilliValue(), l.Memory().Value()}
		}
		assert.Equal(t, []int64{200, 200, 100e6}, inForce(r.m, from))
		quota := "30100"
		if r.pods.current() == Systemd {
			quota = "31000"
		}
		pid := r.start(t, from, "sleep", "300")
		assert.True(t, prepare(t, r.m, to, running(from)).Changed)
		assert.Equal(t, []string{r.weight(308), quota, "99999744", r.limits(t, at)[3]}, r.limits(t, at),
			"the containers have more memory")
		assert.Equal(t, []int64{301, 301, 100e6}, inForce(r.m, from))
		next, err := NewManager(r.pods, ManagerOptions{})
		require.NoError(t, err)
		assert.True(t, prepare(t, next, to, running(to)).Changed)
		assert.Equal(t, []string{r.weight(308), quota, "79998976", r.limits(t, at)[3]}, r.limits(t, at))
		third, err := NewManager(r.pods, ManagerOptions{})
		require.NoError(t, err)
		assert.Zero(t, prepare(t, third, to, running(to)), "it is as it is to be")
		assert.Equal(t, []int64{301, 301, 80e6}, inForce(third, to))
		require.NoError(t, syscall.Kill(pid, 0), "it lives")
	})
}

// A limit of memory below the usage is refused, and kills nothing.
func TestRealLimitBelowUsage(t *testing.T) {
	onRealCgroups(t, ManagerOptions{}, func(t *testing.T, r *real) {
		pod := burstable("m", "2", "1Mi")
		prepare(t, r.m, pod, nil)
		// dd holds its buffer while nothing reads the pipe.
		pid := r.start(t, pod, "sh", "-c", "sleep 1; dd if=/dev/zero bs=40M count=1 | sleep 300")
		at := r.pods.Parent(pod)
		require.Eventually(t, func() bool { n, err := r.memoryUsage(at); return err == nil && n > 38<<20 },
			60*time.Second, 50*time.Millisecond)
		pod.Spec.Containers[0].Resources.Limits[v1.ResourceMemory] = resource.MustParse("8Mi")
		assert.Equal(t, retryAfter, prepare(t, r.m, pod, nil).RetryAfter)
		assert.Contains(t, prepare(t, r.m, ofAPI(pod, 2), nil).ResizeError,
			"attempting to set pod memory limit (8388608) below current usage")
		require.NoError(t, syscall.Kill(pid, 0), "it lives")
	})
}

// Under full load, two pods that request 100m and 900m get CPU time as 1 to 9.
func TestRealCPUTime(t *testing.T) {
	if testing.Short() {
		t.Skip("measures time")
	}
	onRealCgroups(t, ManagerOptions{}, func(t *testing.T, r *real) {
		names := []string{"100m", "900m"}
		pods, pids := make([]*v1.Pod, len(names)), make([]int, len(names))
		for i, cpu := range names {
			pods[i] = burstable(cpu, cpu, "64Mi")
			delete(pods[i].Spec.Containers[0].Resources.Limits, v1.ResourceCPU)
			prepare(t, r.m, pods[i], nil)
			pids[i] = r.start(t, pods[i], "sh", "-c", "while :; do :; done")
		}
		set := unix.CPUSet{}
		set.Set(0)
		usage := func(pod *v1.Pod) int64 {
			text := r.read(t, r.pods.Parent(pod), "cpuacct", "cpuacct.usage", "cpu.stat")
			if fields := strings.Fields(text); r.v2 {
				text = fields[slices.Index(fields, "usage_usec")+1]
			}
			n, err := strconv.ParseInt(text, 10, 64)
			require.NoError(t, err)
			return n
		}
		ratio := 0.0
		assert.Eventually(t, func() bool {
			for _, pid := range pids { // a change of a cpuset takes it back
				assert.NoError(t, unix.SchedSetaffinity(pid, &set))
			}
			before := []int64{usage(pods[0]), usage(pods[1])}
			time.Sleep(time.Second)
			ratio = float64(usage(pods[1])-before[1]) / float64(max(1, usage(pods[0])-before[0]))
			return ratio > 8.1 && ratio < 9.9
		}, 30*time.Second, 10*time.Millisecond, "the ratio is near 9")
		t.Logf("CPU time: 1 to %.2f", ratio)
	})
}

// What the cgroup of a pod costs: when it is made and removed, and in each later sync.
func BenchmarkRealPrepare(b *testing.B) {
	if os.Geteuid() != 0 {
		b.Skip("needs root")
	}
	pods, err := New(Options{Root: fmt.Sprintf("/kubeletkit%db", os.Getpid())})
	require.NoError(b, err)
	m, err := NewManager(pods, ManagerOptions{Policy: Policy{PodPidsLimit: 100}})
	require.NoError(b, err)
	if err := m.tree.usable(Cgroupfs); err != nil {
		b.Skip(err)
	}
	pod := burstable("a", "100m", "64Mi")
	request := lifecycle.PrepareRequest{Pod: pod}
	b.Run("made", func(b *testing.B) {
		for b.Loop() {
			_, err := m.Prepare(b.Context(), request)
			require.NoError(b, err)
			b.StopTimer()
			require.NoError(b, pods.Remove(pod.UID))
			m.forget(pod.UID)
			b.StartTimer()
		}
	})
	b.Run("again", func(b *testing.B) {
		for b.Loop() {
			_, err := m.Prepare(b.Context(), request)
			require.NoError(b, err)
		}
	})
	require.NoError(b, pods.Remove(pod.UID))
	k := m.opts.tree.(*kernel)
	for _, cgroup := range []string{pods.above(Cgroupfs, "burstable"), pods.above(Cgroupfs, "besteffort"),
		pods.above(Cgroupfs, ""), "/" + pods.root[0]} {
		mgr, err := k.manager(Cgroupfs, cgroup, k.translate(Resources{}))
		require.NoError(b, err)
		require.NoError(b, mgr.Destroy())
	}
}

func TestInCgroup(t *testing.T) {
	const v1file = "9:name=systemd:/init\n5:devices:/\n4:memory:/agent\n1:cpu,cpuacct:/agent\n0::/\n"
	assert.True(t, inCgroup(v1file, "/agent", false))
	assert.False(t, inCgroup(v1file, "/", false))
	assert.False(t, inCgroup("4:memory:/other\n1:cpu:/agent\n", "/agent", false), "one of the hierarchies")
	assert.False(t, inCgroup("5:devices:/agent\n", "/agent", false), "none of them")
	assert.True(t, inCgroup("0::/agent:a\n", "/agent:a", true))
	assert.False(t, inCgroup("0::/agent (deleted)\n", "/agent", true))
	assert.False(t, inCgroup("", "/agent", true))
}
