package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// The containers of a pod are in the cgroup that kubelet would give it, which runc makes, and
// which is removed with the pod.
func TestCgroups(t *testing.T) {
	s := newSuite(t, AgentOptions{})
	pod := MakePod("grouped", Main(Sh("c", Forever)))
	s.agent.Put(t, pod)
	uid := s.agent.Await(t, pod, within, Running).UID
	want := s.CgroupRoot() + "/kubepods/besteffort/pod" + string(uid)
	ctr := s.Containers(t, "")[0]
	found := false
	for _, path := range cgroupFiles(t) {
		data, _ := os.ReadFile(path)
		found = found || strings.Contains(string(data), want+"/"+ctr.Id)
	}
	assert.True(t, found, "no process is in %s/%s", want, ctr.Id)
	require.NotEmpty(t, cgroupDirs(t, want))
	s.agent.Remove(t, pod)
	s.agent.AwaitGone(t, within, pod)
	require.Eventually(t, func() bool { return len(cgroupDirs(t, want)) == 0 }, within, within/100,
		fmt.Sprint("what is left of ", want))
}

// A kubelet with cgroups for pods, which is its default, runs pods, and the agents take turns.
func TestKubeletWithCgroups(t *testing.T) {
	Need(t)
	c := NewCluster(t)
	c.MakeCgroup(t) // a kubelet does not start without it
	cgroup := testTakeover(t, c, within, AgentOptions{}, AgentOptions{
		Config: map[string]any{"cgroupsPerQOS": true, "enforceNodeAllocatable": []string{"pods"}},
	})
	assert.True(t, strings.HasPrefix(cgroup, c.CgroupRoot()+"/kubepods/"), cgroup)
}

// testTakeover asserts that the agent takes over the pods of a kubelet, and starts another one; that a
// kubelet takes them all back, which stops pods without a cgroup; and that the agent does the same again.
// Nothing is restarted. It returns the cgroup of a pod that the kubelet has started.
func testTakeover(t *testing.T, c *Cluster, within time.Duration, agent, kubeletOptions AgentOptions) string {
	t.Helper()
	c.Preload(t, "pause:1", "busybox:1")
	kubeletOptions.Binary = KubeletBinary(t)
	ours, kubelet := &suite{Cluster: c, agent: c.NewAgent(t, agent)}, &suite{Cluster: c,
		agent: c.NewAgent(t, kubeletOptions)}
	pods := adoptionPods()
	before := map[string]*v1.Pod{}
	done := pods[len(pods)-1]
	run := func(s *suite, started ...*v1.Pod) (containers int) {
		s.agent.Start(t)
		s.agent.WaitHealthy(t)
		s.agent.Put(t, started...)
		for _, pod := range started {
			if pod != done {
				before[pod.Name] = s.agent.Await(t, pod, within, Running, Ready(true))
			}
		}
		s.agent.Await(t, done, within, Phase(v1.PodSucceeded))
		time.Sleep(within / 12) // a kubelet stops pods without a cgroup at their first sync
		for _, pod := range pods {
			if was := before[pod.Name]; was != nil {
				adopted(t, was, s.agent.Await(t, pod, within, Running, Ready(true)))
			}
		}
		return len(c.Containers(t, ""))
	}
	own := MakePod("adopt-ours", Main(Sh("c", Forever)))
	own.UID = podUID(len(pods))

	containers := run(kubelet, pods...)
	cgroup := podCgroupOf(t, c, pods[1])
	kubelet.agent.Stop(t)
	assert.Equal(t, containers, run(ours), "containers that this agent has taken over")
	pods = append(pods, own)
	ours.agent.Put(t, own)
	before[own.Name] = ours.agent.Await(t, own, within, Running, Ready(true))
	ours.agent.Stop(t)
	assert.Equal(t, containers+1, run(kubelet), "containers that the kubelet has taken back")
	kubelet.agent.Stop(t)
	assert.Equal(t, containers+1, run(ours), "containers that this agent has taken over again")

	// The cgroup that the kubelet has made goes with its pod.
	ours.agent.Remove(t, pods[1])
	ours.agent.AwaitGone(t, within, pods[1])
	Eventually(t, within, "cgroup of the pod removed", func() error {
		if left := cgroupDirs(t, cgroup); len(left) > 0 {
			return fmt.Errorf("%v", left)
		}
		return nil
	})
	return cgroup
}

// podCgroupOf returns the cgroup of the pod, as a running container of it shows.
func podCgroupOf(t *testing.T, c *Cluster, pod *v1.Pod) string {
	t.Helper()
	for _, ctr := range c.Containers(t, FullName(pod)) {
		for _, file := range cgroupFiles(t) {
			data, _ := os.ReadFile(file) // the process may have ended
			for line := range strings.Lines(string(data)) {
				_, path, _ := strings.Cut(strings.TrimSpace(line), ":/")
				if parent, name := filepath.Split(path); name == ctr.Id || name == "cri-containerd-"+ctr.Id+".scope" {
					return "/" + filepath.Clean(parent)
				}
			}
		}
	}
	t.Fatalf("no process of pod %s is in a cgroup of its container", pod.Name)
	return ""
}

// cgroupDirs returns the directories of a cgroup in all hierarchies.
func cgroupDirs(t *testing.T, path string) []string {
	t.Helper()
	var dirs []string
	for _, pattern := range []string{"/sys/fs/cgroup/*", "/sys/fs/cgroup"} {
		found, err := filepath.Glob(pattern + path)
		require.NoError(t, err)
		dirs = append(dirs, found...)
	}
	return dirs
}

func cgroupFiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cgroup")
	require.NoError(t, err)
	return files
}
