package e2e

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/node/oom"
	"github.com/kubeletkit/kubeletkit/node/swap"
	"github.com/kubeletkit/kubeletkit/node/volume"
	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/podconfig/manifest"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/cri"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// memoryAgent is an agent in this process, with the components of memory. Its pods are those of a source named api:
// static pods are critical and get no swap.
type memoryAgent struct {
	*kubeletkit.Agent
	pods chan []*v1.Pod
	root string // its root directory

	mu     sync.Mutex
	events []runtime.Event
}

func startMemoryAgent(t *testing.T, c *Cluster, join ...lifecycle.Component) *memoryAgent {
	// This process may be in the root of the cgroups, which has no limits. A cgroup below it shows which ones the
	// kernel has.
	const root = "/sys/fs/cgroup"
	require.NoError(t, os.WriteFile(filepath.Join(root, "cgroup.subtree_control"), []byte("+cpu +memory"), 0))
	below := filepath.Join(root, "e2e-limits")
	require.NoError(t, os.Mkdir(below, 0o755))
	t.Cleanup(func() { assert.NoError(t, os.Remove(below)) })
	rt, err := cri.Dial(t.Context(), c.Endpoint(), cri.Options{
		KillProcessesSingly: true,
		CgroupParent: func(pod *v1.Pod) string {
			return "/kubepods/" + strings.ToLower(string(podspec.QOSClass(pod))) + "/pod" + string(pod.UID)
		},
	})
	require.NoError(t, err)
	a := &memoryAgent{pods: make(chan []*v1.Pod, 1), root: t.TempDir()}
	limiter, err := swap.New(swap.Options{Behavior: swap.LimitedSwap})
	require.NoError(t, err)
	watcher, err := oom.New(oom.Options{})
	require.NoError(t, err)
	a.Agent, err = kubeletkit.New(kubeletkit.Options{
		NodeName: NodeName, RootDir: a.root, Runtime: rt,
		Sources: []podconfig.Source{podconfig.NewChannel(podspec.SourceAPI, a.pods)},
		Observe: kubeletkit.Observe{EveryEvent: func(e runtime.Event) {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.events = append(a.events, e)
		}},
		Join: append([]lifecycle.Component{limiter, watcher}, join...),
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, <-done)
		assert.NoError(t, rt.Close())
	})
	return a
}

// memoryPod is a pod of an API server.
func memoryPod(name, script string, requests, limits v1.ResourceList) *v1.Pod {
	pod := MakePod(name, Main(Sh("main", script)))
	pod.UID = types.UID("uid-" + name)
	pod.Spec.HostNetwork, pod.Spec.RestartPolicy = true, v1.RestartPolicyNever
	pod.Spec.Containers[0].Resources = v1.ResourceRequirements{Requests: requests, Limits: limits}
	manifest.SetDefaults(pod)
	return pod
}

// await waits for a condition of the container of a pod.
func (a *memoryAgent) await(t *testing.T, pod *v1.Pod, what string,
	is func(s *v1.ContainerStatus) bool) (status v1.ContainerStatus) {
	t.Helper()
	Eventually(t, guestWithin, pod.Name+": "+what, func() error {
		for _, p := range a.Pods() {
			if p.UID != pod.UID || len(p.Status.ContainerStatuses) == 0 {
				continue
			}
			if status = p.Status.ContainerStatuses[0]; is(&status) {
				return nil
			}
			return fmt.Errorf("%+v", status.State)
		}
		return fs.ErrNotExist
	})
	return status
}

// file returns a file of the cgroup of a container.
func (a *memoryAgent) file(t *testing.T, pod *v1.Pod, status v1.ContainerStatus, name string) string {
	t.Helper()
	_, id, _ := strings.Cut(status.ContainerID, "://")
	data, err := os.ReadFile(filepath.Join("/sys/fs/cgroup/kubepods", strings.ToLower(string(podspec.QOSClass(pod))),
		"pod"+string(pod.UID), id, name))
	require.NoError(t, err)
	return strings.TrimSpace(string(data))
}

func isRunning(s *v1.ContainerStatus) bool    { return s.State.Running != nil }
func isTerminated(s *v1.ContainerStatus) bool { return s.State.Terminated != nil }

func memoryOf(amount string) v1.ResourceList {
	return v1.ResourceList{v1.ResourceMemory: resource.MustParse(amount)}
}

// With LimitedSwap, containers in containerd have kubelet's limits of swap. A resize of CPU keeps them, and one of
// requested memory is infeasible.
func TestGuestSwap(t *testing.T) {
	inGuest(t)
	device := os.Getenv("KUBELETKIT_GUEST_SWAP")
	out, err := exec.Command("swapon", device).CombinedOutput()
	require.NoError(t, err, "%s", out)
	defer func() {
		out, err := exec.Command("swapoff", device).CombinedOutput()
		assert.NoError(t, err, "%s", out)
	}()
	machine, err := swap.ReadMachine()
	require.NoError(t, err)
	require.Positive(t, machine.Swap)

	a := startMemoryAgent(t, NewCluster(t))
	sized := func(cpu, memory string) *v1.Pod {
		requests := memoryOf(memory)
		requests[v1.ResourceCPU] = resource.MustParse(cpu)
		return memoryPod("swapping", Forever, requests, memoryOf("200Mi"))
	}
	swapping := sized("100m", "100Mi")
	equal := memoryPod("equal", Forever, memoryOf("100Mi"), memoryOf("100Mi"))
	plain := memoryPod("plain", Forever, nil, nil)
	a.pods <- []*v1.Pod{swapping, equal, plain}
	status := a.await(t, swapping, "running", isRunning)
	// The kernel rounds down to pages.
	limit := swap.Limit(swapping, &swapping.Spec.Containers[0], machine)
	want := strconv.FormatInt(limit/int64(os.Getpagesize())*int64(os.Getpagesize()), 10)
	assert.Positive(t, limit)
	assert.Equal(t, want, a.file(t, swapping, status, "memory.swap.max"))
	t.Logf("memory %d, swap %d: %s", machine.Memory, machine.Swap, want)
	assert.Equal(t, "0", a.file(t, equal, a.await(t, equal, "running", isRunning), "memory.swap.max"))
	assert.Equal(t, "0", a.file(t, plain, a.await(t, plain, "running", isRunning), "memory.swap.max"))

	weight := a.file(t, swapping, status, "cpu.weight")
	resized := sized("500m", "100Mi")
	resized.Generation = 2
	a.pods <- []*v1.Pod{resized, equal, plain}
	Eventually(t, guestWithin, "resized", func() error {
		if now := a.file(t, swapping, status, "cpu.weight"); now == weight {
			return fmt.Errorf("cpu.weight is %s", now)
		}
		return nil
	})
	assert.Equal(t, want, a.file(t, swapping, status, "memory.swap.max"))

	more := sized("500m", "150Mi")
	more.Generation = 3
	a.pods <- []*v1.Pod{more, equal, plain}
	Eventually(t, guestWithin, "the resize is refused", func() error {
		for _, p := range a.Pods() {
			for _, c := range p.Status.Conditions {
				if p.UID == more.UID && c.Type == v1.PodResizePending && c.Reason == v1.PodReasonInfeasible {
					return nil
				}
			}
		}
		return fs.ErrNotExist
	})
	assert.Equal(t, want, a.file(t, swapping, status, "memory.swap.max"))
}

// A container in containerd whose child is killed for lack of memory, with singleProcessOOMKill, has the reason
// OOMKilled when it ends because of it. The event names the container and the process.
func TestGuestChildIsKilled(t *testing.T) {
	inGuest(t)
	a := startMemoryAgent(t, NewCluster(t))
	const hog = `sh -c 'a=xxxxxxxxxxxxxxxx; while :; do a=$a$a; done'`
	parent := memoryPod("parent", hog+`; exit 3`, nil, memoryOf("30Mi"))
	alone := memoryPod("alone", "exec "+hog, nil, memoryOf("30Mi"))
	other := memoryPod("other", "exit 3", nil, memoryOf("30Mi"))
	a.pods <- []*v1.Pod{parent, alone, other}
	for pod, want := range map[*v1.Pod]string{parent: "OOMKilled 3", alone: "OOMKilled 137", other: "Error 3"} {
		s := a.await(t, pod, "terminated", isTerminated)
		assert.Equal(t, want, fmt.Sprint(s.State.Terminated.Reason, " ", s.State.Terminated.ExitCode), pod.Name)
		a.mu.Lock()
		var found []string
		for _, e := range a.events {
			if e.Reason == oom.ReasonOOMKilling && e.Pod.UID == pod.UID {
				found = append(found, e.FieldPath+" "+e.Message)
			}
		}
		a.mu.Unlock()
		if pod == other {
			assert.Empty(t, found)
			continue
		}
		require.Len(t, found, 1, pod.Name)
		t.Log(found[0])
		assert.Contains(t, found[0], "spec.containers{main} The kernel killed process sh (pid ")
		assert.Contains(t, found[0], "of container main: the memory limit of the container is reached")
	}
}

// A volume in memory of a pod that runs in containerd has the size of its changed limit, without a restart. It is at
// most the limit of memory of the pod, and does not become smaller than what it holds (KEP-6030).
func TestGuestVolumeResize(t *testing.T) {
	inGuest(t)
	c := NewCluster(t)
	a := startMemoryAgent(t, c, volume.MemoryResizer{})
	generation := int64(0)
	sized := func(size string) *v1.Pod {
		pod := memoryPod("volume", Forever, memoryOf("50Mi"), memoryOf("100Mi"))
		generation++
		pod.Generation = generation
		limit := resource.MustParse(size)
		pod.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{
			Medium: v1.StorageMediumMemory, SizeLimit: &limit}}}}
		pod.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "v", MountPath: "/v"}}
		return pod
	}
	put := func(size string) { a.pods <- []*v1.Pod{sized(size)} }
	sees := func(kilobytes string) {
		t.Helper()
		Eventually(t, guestWithin, "the container sees "+kilobytes+" KiB", func() error {
			out, err := c.TryExec(t, "volume", "main", "sh", "-c", "df -k /v | tail -n 1 | awk '{print $2}'")
			if err == nil && strings.TrimSpace(out) != kilobytes {
				err = fmt.Errorf("%s", out)
			}
			return err
		})
	}
	conditions := func() (found []string) {
		for _, p := range a.Pods() {
			for _, condition := range p.Status.Conditions {
				if strings.HasPrefix(string(condition.Type), "PodResize") {
					found = append(found, fmt.Sprintf("%s %s %s", condition.Type, condition.Reason, condition.Message))
				}
			}
		}
		return found
	}
	put("16Mi")
	first := a.await(t, sized("16Mi"), "running", isRunning)
	sees("16384")
	put("32Mi")
	sees("32768")
	put("1Gi")
	sees("102400") // the limit of the pod
	c.Exec(t, "volume", "main", "sh", "-c", "head -c 20971520 /dev/zero > /v/file")
	put("8Mi")
	Eventually(t, guestWithin, "the resize fails", func() error {
		found := strings.Join(conditions(), "\n")
		if !strings.Contains(found, "PodResizeInProgress Error ") ||
			!strings.Contains(found, "failed to resize volume v") {
			return fmt.Errorf("%q", found)
		}
		return nil
	})
	sees("102400")
	put("24Mi")
	sees("24576")
	Eventually(t, guestWithin, "no resize is under way", func() error {
		if found := conditions(); len(found) > 0 {
			return fmt.Errorf("%q", found)
		}
		return nil
	})
	last := a.await(t, sized("24Mi"), "running", isRunning)
	assert.Equal(t, first.ContainerID, last.ContainerID)
	assert.Zero(t, last.RestartCount)
	a.pods <- nil
	Eventually(t, guestWithin, "the volume is unmounted", func() error {
		left, err := filepath.Glob(filepath.Join(a.root, "pods", "*", "volumes", "*", "v"))
		if len(left) > 0 {
			return fmt.Errorf("%v", left)
		}
		return err
	})
}
