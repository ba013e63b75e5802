package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// TestEvictionForDisk fills the file system of the agent from one of several pods: that pod is evicted, its files are
// removed, and no other pod is restarted.
func TestEvictionForDisk(t *testing.T) {
	Need(t)
	c := NewCluster(t)
	c.Preload(t, "pause:1", "busybox:1")
	s := &suite{Cluster: c, agent: c.NewAgent(t, AgentOptions{Config: map[string]any{
		"evictionHard": map[string]string{"nodefs.available": "40%", "nodefs.inodesFree": "5%"}, "evictionPressureTransitionPeriod": "5s",
	}})}
	const size = 128 << 20
	smallRoot(s, t)
	s.agent.Start(t)
	s.agent.WaitHealthy(t)

	good, writes := neighbours(s, t), MakePod("writes",
		Volume("data", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}),
		Main(Sh("c", "dd if=/dev/zero of=/data/f bs=1048576 count=8; "+Forever)))
	mount(writes)
	s.agent.Put(t, writes)
	good[writes] = s.agent.Await(t, writes, within, Running)
	filler := MakePod("filler", Volume("data", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}),
		Main(Sh("c", "dd if=/dev/zero of=/data/f bs=1048576 count=90; "+Forever)))
	mount(filler)
	s.agent.Put(t, filler)
	ended := s.agent.Await(t, filler, within, Phase(v1.PodFailed))
	assert.Equal(t, "Evicted", ended.Status.Reason)
	assert.True(t, strings.HasPrefix(ended.Status.Message, "The node was low on resource: ephemeral-storage. "+
		"Threshold quantity: "), ended.Status.Message)
	var st unix.Statfs_t
	require.Eventually(t, func() bool {
		return unix.Statfs(s.agent.Root, &st) == nil && st.Bavail*uint64(st.Bsize) > size*8/10
	}, within, within/100, "the files of the pod are removed")
	time.Sleep(10 * time.Second) // no other pod goes
	good.assertUntouched(s, t)
	log, err := os.ReadFile(s.agent.LogPath())
	require.NoError(t, err)
	assert.Equal(t, 1, strings.Count(string(log), "A pod is evicted"), "one is enough")
}

// TestEvictionAcrossKills kills the agent twice while a pod that it evicts has not ended yet. The next agent evicts
// that pod, and no other one ends or is restarted.
func TestEvictionAcrossKills(t *testing.T) {
	Need(t)
	c := NewCluster(t)
	c.Preload(t, "pause:1", "busybox:1")
	s := &suite{Cluster: c, agent: c.NewAgent(t, AgentOptions{Config: map[string]any{
		"evictionHard": map[string]string{"nodefs.available": "1%"},
		"evictionSoft": map[string]string{"nodefs.available": "40%"}, "evictionSoftGracePeriod": map[string]string{"nodefs.available": "1s"},
		"evictionMaxPodGracePeriod": 10, "evictionPressureTransitionPeriod": "5s",
	}})}
	smallRoot(s, t)
	s.agent.Start(t)
	s.agent.WaitHealthy(t)
	good := neighbours(s, t)
	filler := MakePod("filler", Grace(10), Volume("data", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}),
		Main(Sh("c", "trap '' TERM; dd if=/dev/zero of=/data/f bs=1048576 count=90; "+Forever)))
	mount(filler)
	s.agent.Put(t, filler)
	evicted := func() (lines []string) {
		for line := range strings.Lines(read(t, s.agent.LogPath())) {
			if strings.Contains(line, "A pod is evicted") {
				lines = append(lines, line)
			}
		}
		return lines
	}
	for kill := range 2 {
		Eventually(t, within, "the pod evicted", func() error {
			if n := len(evicted()); n != kill+1 {
				return fmt.Errorf("%d evictions", n)
			}
			return nil
		})
		s.agent.Kill(t)
		s.agent.Start(t)
		s.agent.WaitHealthy(t)
	}
	ended := s.agent.Await(t, filler, within, Phase(v1.PodFailed))
	assert.Equal(t, "Evicted", ended.Status.Reason)
	time.Sleep(10 * time.Second) // no other pod goes
	good.assertUntouched(s, t)
	all := evicted()
	assert.Len(t, all, 3, "each agent evicts once")
	for _, line := range all {
		assert.Contains(t, line, FullName(filler))
	}
}

// smallRoot gives the agent a root directory of 128 MiB.
func smallRoot(s *suite, t *testing.T) {
	t.Helper()
	if err := unix.Mount("tmpfs", s.agent.Root, "tmpfs", 0, "size=128m,mode=755"); err != nil {
		Skip(t, "needs a small file system: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(s.agent.Root, unix.MNT_DETACH) })
}

// TestEvictionForMemory has a pod use up what all pods together may use, a small part of the machine: that pod is
// evicted before the kernel kills, and no other pod is restarted.
func TestEvictionForMemory(t *testing.T) {
	Need(t)
	c := NewCluster(t)
	c.Preload(t, "pause:1", "busybox:1")
	var machine unix.Sysinfo_t
	require.NoError(t, unix.Sysinfo(&machine))
	reserved := resource.NewQuantity(int64(machine.Totalram)*int64(machine.Unit)-300<<20, resource.BinarySI)
	s := &suite{Cluster: c, agent: c.StartAgent(t, AgentOptions{Config: map[string]any{
		"evictionHard":   map[string]string{"memory.available": "100Mi"},
		"systemReserved": map[string]string{"memory": reserved.String()},
	}})}
	good := neighbours(s, t)
	hog := MakePod("hog",
		Volume("data", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}}),
		Main(Sh("c", "for i in $(seq 22); do dd if=/dev/zero of=/data/$i bs=1048576 count=10; sleep 0.1; done; "+
			Forever)))
	mount(hog)
	s.agent.Put(t, hog)
	ended := s.agent.Await(t, hog, within, Phase(v1.PodFailed))
	assert.Equal(t, "Evicted", ended.Status.Reason, ended.Status.Message)
	assert.Contains(t, ended.Status.Message, "The node was low on resource: memory. Threshold quantity: 100Mi, "+
		"available: ")
	assert.Contains(t, ended.Status.Message, "Container c was using ")
	time.Sleep(5 * time.Second)
	good.assertUntouched(s, t)
	log, err := os.ReadFile(s.agent.LogPath())
	require.NoError(t, err)
	assert.Equal(t, 1, strings.Count(string(log), "A pod is evicted"), "one is enough")
}

// mount mounts the volume data at /data.
func mount(pod *v1.Pod) {
	pod.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "data", MountPath: "/data"}}
}

// neighbourhood are pods as they were when they ran first.
type neighbourhood map[*v1.Pod]*v1.Pod

// neighbours starts pods beside that of a test.
func neighbours(s *suite, t *testing.T) neighbourhood {
	out := neighbourhood{}
	for _, name := range []string{"good-1", "good-2", "good-3"} {
		pod := MakePod(name, Main(Sh("c", Forever)))
		s.agent.Put(t, pod)
		out[pod] = nil
	}
	for pod := range out {
		out[pod] = s.agent.Await(t, pod, within, Running)
	}
	return out
}

// assertUntouched asserts that the pods run in the same containers.
func (r neighbourhood) assertUntouched(s *suite, t *testing.T) {
	for pod, before := range r {
		now := s.agent.Await(t, pod, within, Running)
		assert.Equal(t, before.Status.ContainerStatuses[0].ContainerID, now.Status.ContainerStatuses[0].ContainerID,
			pod.Name)
	}
}
