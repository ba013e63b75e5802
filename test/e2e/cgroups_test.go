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
	dirs := func() []string {
		v1, err := filepath.Glob("/sys/fs/cgroup/*" + want)
		require.NoError(t, err)
		v2, err := filepath.Glob("/sys/fs/cgroup" + want)
		require.NoError(t, err)
		return append(v1, v2...)
	}
	require.NotEmpty(t, dirs())
	s.agent.Remove(t, pod)
	s.agent.AwaitGone(t, within, pod)
	require.Eventually(t, func() bool { return len(dirs()) == 0 }, within, within/100, fmt.Sprint("what is left of ", want))
}

// A kubelet with cgroups for pods, which is its default, stops pods that have none. Those of
// this agent have the right ones.
func TestKubeletWithCgroupsTakesBack(t *testing.T) {
	Need(t)
	c := NewCluster(t)
	c.Preload(t, "pause:1", "busybox:1")
	ours := &suite{Cluster: c, agent: c.NewAgent(t, AgentOptions{})}
	kubelet := c.NewAgent(t, AgentOptions{Binary: KubeletBinary(t), Config: map[string]any{"cgroupsPerQOS": true}})
	pods := adoptionPods()
	ours.agent.Put(t, pods...)
	ours.agent.Start(t)
	ours.agent.WaitHealthy(t)
	before := ours.awaitAll(t, pods[:len(pods)-1], Running, Ready(true))
	ours.agent.Await(t, pods[len(pods)-1], within, Phase(v1.PodSucceeded))
	containers := len(c.Containers(t, ""))
	ours.agent.Stop(t)

	kubelet.Start(t)
	kubelet.WaitHealthy(t)
	time.Sleep(5 * time.Second) // it stops them with their first sync
	for i := range before {
		adopted(t, before[i], kubelet.Await(t, pods[i], within, Running, Ready(true)))
	}
	assert.Len(t, c.Containers(t, ""), containers)
}

func cgroupFiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cgroup")
	require.NoError(t, err)
	return files
}
