package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/cpuset"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// staticCPUs is the configuration for exclusive CPUs. CPU 0 is reserved.
func staticCPUs() map[string]any {
	return map[string]any{
		"cpuManagerPolicy": "static", "reservedSystemCPUs": "0", "topologyManagerPolicy": "restricted", "cpuManagerReconcilePeriod": "1s",
		"cgroupsPerQOS": true, "enforceNodeAllocatable": []string{"pods"},
	}
}

// needCPUs skips a test that needs exclusive CPUs.
func needCPUs(t *testing.T) {
	t.Helper()
	if runtime.NumCPU() < 2 {
		t.Skip("needs two CPUs")
	}
}

// exclusive is a pod with a CPU of its own.
func exclusive(name string) *v1.Pod {
	pod := MakePod(name, Main(Sh("c", Forever)))
	pod.Spec.HostNetwork = true
	list := v1.ResourceList{v1.ResourceCPU: resource.MustParse("1"), v1.ResourceMemory: resource.MustParse("64Mi")}
	pod.Spec.Containers[0].Resources = v1.ResourceRequirements{Requests: list, Limits: list}
	return pod
}

// allowed returns the CPUs of the container of the pod, as its process has them, and whether it or its pod has a limit
// of CPU time.
func allowed(t *testing.T, c *Cluster, pod *v1.Pod) (cpus string, limited bool) {
	t.Helper()
	id := c.Newest(t, FullName(pod), "c").Id
	for _, file := range cgroupFiles(t) {
		data, _ := os.ReadFile(file) // the process may have ended
		if !strings.Contains(string(data), id) {
			continue
		}
		status, err := os.ReadFile(filepath.Join(filepath.Dir(file), "status"))
		require.NoError(t, err)
		_, rest, _ := strings.Cut(string(status), "Cpus_allowed_list:")
		list, _, _ := strings.Cut(strings.TrimSpace(rest), "\n")
		for line := range strings.Lines(string(data)) {
			parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
			for _, dir := range []string{parts[2], filepath.Dir(parts[2])} {
				v2, _ := os.ReadFile(filepath.Join("/sys/fs/cgroup", dir, "cpu.max"))
				v1, _ := os.ReadFile(filepath.Join("/sys/fs/cgroup", parts[1], dir, "cpu.cfs_quota_us"))
				limited = limited || len(v2) > 0 && !strings.HasPrefix(string(v2), "max") || len(v1) > 0 &&
					!strings.HasPrefix(string(v1), "-1")
			}
		}
		return list, limited
	}
	t.Fatalf("no process of container %s", id)
	return "", false
}

// awaitCPUs waits until the container of the pod has CPUs that the condition accepts.
func awaitCPUs(t *testing.T, c *Cluster, within time.Duration, pod *v1.Pod, what string,
	ok func(set cpuset.CPUSet) bool) cpuset.CPUSet {
	t.Helper()
	var set cpuset.CPUSet
	Eventually(t, within, fmt.Sprintf("pod %s has CPUs %s", pod.Name, what), func() error {
		list, _ := allowed(t, c, pod)
		var err error
		if set, err = cpuset.Parse(list); err == nil && !ok(set) {
			err = fmt.Errorf("it has %s", list)
		}
		return err
	})
	return set
}

func TestExclusiveCPUs(t *testing.T) {
	Need(t)
	needCPUs(t)
	testExclusiveCPUs(t, within)
}

// testExclusiveCPUs asserts which CPUs containers have while exclusive ones are given, kept and given back.
func testExclusiveCPUs(t *testing.T, within time.Duration) {
	c := NewCluster(t)
	c.MakeCgroup(t)
	s := &suite{Cluster: c, agent: c.StartAgent(t, AgentOptions{Config: staticCPUs()})}
	all := func(set cpuset.CPUSet) bool { return set.Size() == runtime.NumCPU() }
	shared, own := MakePod("shared", Main(Sh("c", Forever))), exclusive("own")
	s.agent.Put(t, shared)
	s.agent.Await(t, shared, within, Running)
	awaitCPUs(t, c, within, shared, "all", all)

	s.agent.Put(t, own)
	s.agent.Await(t, own, within, Running)
	set := awaitCPUs(t, c, within, own,
		"of its own", func(set cpuset.CPUSet) bool { return set.Size() == 1 && !set.Contains(0) })
	_, limited := allowed(t, c, own)
	assert.False(t, limited, "no limit of CPU time holds")
	awaitCPUs(t, c, within, shared, "of others", func(s cpuset.CPUSet) bool { return s.Intersection(set).IsEmpty() })
	refused := exclusive("refused")
	refused.Spec.Containers[0].Resources.Requests[v1.ResourceCPU] = *resource.NewQuantity(int64(runtime.NumCPU()),
		resource.DecimalSI)
	s.agent.Put(t, refused)
	s.agent.Await(t, refused, within, Phase(v1.PodFailed))

	// Nothing changes with a restart of the agent.
	id := c.Newest(t, FullName(own), "c").Id
	s.agent.Kill(t)
	s.agent.Start(t)
	s.agent.WaitHealthy(t)
	s.agent.Await(t, own, within, Running)
	assert.Equal(t, id, c.Newest(t, FullName(own), "c").Id)
	awaitCPUs(t, c, within, own, "as before", set.Equals)
	awaitCPUs(t, c, within, shared, "of others", func(s cpuset.CPUSet) bool { return s.Intersection(set).IsEmpty() })

	s.agent.Remove(t, own)
	s.agent.AwaitGone(t, within, own)
	awaitCPUs(t, c, within, shared, "all again", all)
}

// A kubelet gives a pod exclusive CPUs, this agent takes it over, ends it and starts another one, which the kubelet
// takes over.
func TestKubeletWithExclusiveCPUs(t *testing.T) {
	Need(t)
	needCPUs(t)
	c := NewCluster(t)
	c.MakeCgroup(t)
	c.Preload(t, "pause:1", "busybox:1")
	kubelet := &suite{Cluster: c, agent: c.NewAgent(t, AgentOptions{Binary: KubeletBinary(t), Config: staticCPUs()})}
	ours := &suite{Cluster: c, agent: c.NewAgent(t, AgentOptions{Config: staticCPUs()})}
	shared, first, second := MakePod("shared", Main(Sh("c", Forever))), exclusive("first"), exclusive("second")
	for i, pod := range []*v1.Pod{shared, first, second} {
		pod.UID = podUID(i)
	}
	start := func(s *suite, pods ...*v1.Pod) (containers []string) {
		s.agent.Start(t)
		s.agent.WaitHealthy(t)
		s.agent.Put(t, pods...)
		for _, pod := range pods {
			s.agent.Await(t, pod, within, Running)
			containers = append(containers, c.Newest(t, FullName(pod), "c").Id)
		}
		return containers
	}
	apart := func(pod *v1.Pod) cpuset.CPUSet {
		set := awaitCPUs(t, c, within, pod,
			"of its own", func(set cpuset.CPUSet) bool { return set.Size() == 1 && !set.Contains(0) })
		awaitCPUs(t, c, within, shared,
			"of others", func(s cpuset.CPUSet) bool { return s.Intersection(set).IsEmpty() })
		return set
	}
	containers := start(kubelet, shared, first)
	set := apart(first)
	kubelet.agent.Stop(t)
	assert.Equal(t, containers, start(ours, shared, first), "nothing is restarted")
	assert.Equal(t, set.String(), apart(first).String())
	ours.agent.Remove(t, first)
	ours.agent.AwaitGone(t, within, first)
	ours.agent.Put(t, second)
	ours.agent.Await(t, second, within, Running)
	set = apart(second)
	running := c.Newest(t, FullName(second), "c").Id
	ours.agent.Stop(t)
	assert.Equal(t, []string{containers[0], running}, start(kubelet, shared, second), "nothing is restarted")
	assert.Equal(t, set.String(), apart(second).String())
}
