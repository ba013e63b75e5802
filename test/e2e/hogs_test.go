package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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

// smallDisk makes a file system of 600 MB and 20,000 inodes, in memory, and lets the directories lie on it.
func smallDisk(t *testing.T, c *Cluster, dirs ...string) (disk string) {
	t.Helper()
	Need(t, "mkfs.ext4", "mount")
	disk, image := filepath.Join(c.Dir, "disk"), filepath.Join(c.Dir, "memory/image")
	require.NoError(t, os.MkdirAll(disk, 0o755))
	require.NoError(t, os.MkdirAll(filepath.Dir(image), 0o755))
	require.NoError(t, unix.Mount("tmpfs", filepath.Dir(image), "tmpfs", 0, "size=700m"))
	f, err := os.Create(image)
	require.NoError(t, err)
	require.NoError(t, f.Truncate(600<<20))
	require.NoError(t, f.Close())
	for _, cmd := range [][]string{{"mkfs.ext4", "-q", "-m", "0", "-N", "20000", image},
		{"mount", "-o", "loop", image, disk}} {
		out, err := exec.CommandContext(t.Context(), cmd[0], cmd[1:]...).CombinedOutput()
		require.NoError(t, err, string(out))
	}
	for _, dir := range dirs {
		on := filepath.Join(disk, filepath.Base(dir))
		require.NoError(t, os.MkdirAll(on, 0o755))
		require.NoError(t, os.MkdirAll(dir, 0o755))
		require.NoError(t, unix.Mount(on, dir, "", unix.MS_BIND, ""))
	}
	return disk
}

// TestHogsOfDisks has pods fill the only disk of a node of a cluster, which is also that of containerd: its bytes by
// ten pods that write 100 MB/s each, then its inodes by one. These pods end and no other one. Meanwhile the node has
// DiskPressure and the taint, and refuses pods; then it is as before.
func TestHogsOfDisks(t *testing.T) {
	t.Parallel()
	Need(t)
	c := NewClusterWith(t, ClusterOptions{Down: true})
	s := &nodeSuite{Cluster: c, plane: NewControlPlane(t, c.Net)}
	s.agent = c.NewAgent(t, AgentOptions{Kubeconfig: s.plane.NodeKubeconfig(t, NodeName), Config: map[string]any{
		"evictionHard": map[string]string{"nodefs.available": "30%", "nodefs.inodesFree": "30%"}, "evictionPressureTransitionPeriod": "5s",
	}})
	disk := smallDisk(t, c, filepath.Join(c.Dir, "root"), s.agent.Root, s.agent.Logs)
	c.Start(t)
	c.Preload(t, "pause:1", "busybox:1")
	s.start(t)
	namespace := s.plane.Namespace(t, "hogs")
	data := Mounted("data", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}})
	var good []*v1.Pod
	for i := range 5 {
		good = append(good, MakePod(fmt.Sprintf("good-%d", i),
			Main(Sh("c", "dd if=/dev/zero of=/data/f bs=1048576 count=4; "+Forever)), data))
	}
	s.create(t, namespace, good...)
	before := map[string]string{}
	for _, pod := range good {
		before[pod.Name] = s.await(t, namespace, pod.Name, Running).Status.ContainerStatuses[0].ContainerID
	}

	for _, hogs := range []struct {
		name, script, message string
		n                     int
	}{
		{"filler", "i=0; while :; do i=$((i+1)); dd if=/dev/zero of=/data/$i bs=1048576 count=10 2>/dev/null; usleep 100000; done", "The node was low on resource: ephemeral-storage. ", 10},
		{"inodes", "i=0; while :; do i=$((i+1)); : >/data/$i; done", "The node was low on resource: inodes. ", 1},
	} {
		start := t.TempDir() // they start at once
		var pods []*v1.Pod
		for i := range hogs.n {
			pods = append(pods, MakePod(fmt.Sprintf("%s-%d", hogs.name, i), Main(Sh("c", "trap 'exit 0' TERM; while "+
				"[ ! -e /shared/go ]; do sleep 0.1; done; "+hogs.script)), data, Shared(start)))
		}
		s.create(t, namespace, pods...)
		for _, pod := range pods {
			s.await(t, namespace, pod.Name, Running)
		}
		begin := time.Now()
		require.NoError(t, os.WriteFile(filepath.Join(start, "go"), nil, 0o600))
		s.awaitNode(t, diskPressure(true))
		refused := MakePod("refused-"+hogs.name, Main(Sh("c", Forever)))
		refused.Spec.NodeName = NodeName // the scheduler would not choose a node with the taint
		s.create(t, namespace, refused)
		assert.Contains(t, s.await(t, namespace, refused.Name, Phase(v1.PodFailed)).Status.Message, "DiskPressure")
		for _, pod := range pods {
			ended := s.await(t, namespace, pod.Name, Phase(v1.PodFailed))
			assert.Equal(t, "Evicted", ended.Status.Reason)
			assert.Contains(t, ended.Status.Message, hogs.message)
		}
		t.Logf("%d pods were evicted within %v", hogs.n, time.Since(begin))
		s.awaitNode(t, nodeReady, diskPressure(false))
		var st unix.Statfs_t
		require.NoError(t, unix.Statfs(disk, &st))
		assert.Greater(t, st.Bavail*10, st.Blocks*8, "the files of the pods are removed")
		assert.Greater(t, st.Ffree*10, st.Files*8)
	}
	for _, pod := range good {
		now := s.await(t, namespace, pod.Name, Running)
		assert.Equal(t, before[pod.Name], now.Status.ContainerStatuses[0].ContainerID, pod.Name)
	}
	later := MakePod("later", Main(Sh("c", Forever)))
	s.create(t, namespace, later)
	s.await(t, namespace, later.Name, Running)
}

// diskPressure waits for the condition, and for the taint that the control plane derives from it.
func diskPressure(want bool) func(*v1.Node) error {
	return func(node *v1.Node) error {
		tainted := slices.ContainsFunc(node.Spec.Taints,
			func(t v1.Taint) bool { return t.Key == v1.TaintNodeDiskPressure })
		has := slices.ContainsFunc(node.Status.Conditions, func(c v1.NodeCondition) bool {
			return c.Type == v1.NodeDiskPressure && c.Status == v1.ConditionTrue
		})
		if tainted != want || has != want {
			return fmt.Errorf("taint %v, condition %v", tainted, has)
		}
		return nil
	}
}

// TestHogs has a pod use up 1 GB of memory a second, and another one start processes without end, beside 50 pods: no
// other pod ends.
func TestHogs(t *testing.T) {
	t.Parallel()
	Need(t)
	c := NewCluster(t)
	c.Preload(t, "pause:1", "busybox:1")
	var machine unix.Sysinfo_t
	require.NoError(t, unix.Sysinfo(&machine))
	reserved := resource.NewQuantity(int64(machine.Totalram)*int64(machine.Unit)-1200<<20, resource.BinarySI)
	s := &suite{Cluster: c, agent: c.StartAgent(t, AgentOptions{Config: map[string]any{
		"evictionHard":   map[string]string{"memory.available": "100Mi"},
		"systemReserved": map[string]string{"memory": reserved.String()},
		"podPidsLimit":   100,
	}})}
	var good []*v1.Pod
	for i := range 50 {
		pod := MakePod(fmt.Sprintf("good-%d", i), Main(Sh("c", Forever)))
		pod.Spec.HostNetwork = true // their networks are not what is tested
		good = append(good, pod)
	}
	s.agent.Put(t, good...)
	before := map[string]string{}
	for _, pod := range good {
		before[pod.Name] = s.agent.Await(t, pod, eventually, Running).Status.ContainerStatuses[0].ContainerID
	}

	// A shell that cannot fork ends. Then the container is restarted, and forks again.
	bomb := MakePod("bomb", Grace(0), Main(Sh("c", "bomb() { while :; do bomb & done; }; while :; do bomb "+
		"2>/dev/null & i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; done")))
	s.agent.Put(t, bomb)
	s.agent.Await(t, bomb, eventually, Restarts("c", 1))
	hog := MakePod("hog", Main(Sh("c", "exec dd if=/dev/zero of=/dev/null bs=2000M count=1000")))
	s.agent.Put(t, hog)
	// The kernel may be faster: then the container is restarted, and uses memory again.
	ended := s.agent.Await(t, hog, eventually, Phase(v1.PodFailed))
	assert.Equal(t, "Evicted", ended.Status.Reason, ended.Status.Message)
	assert.Contains(t, ended.Status.Message, "The node was low on resource: memory. Threshold quantity: 100Mi, "+
		"available: ")
	s.agent.Remove(t, bomb)
	s.agent.AwaitGone(t, eventually, bomb)

	list, err := s.agent.Pods()
	require.NoError(t, err)
	left := 0
	for i := range list.Items {
		pod := &list.Items[i]
		if name, ok := strings.CutSuffix(pod.Name, "-"+NodeName); ok && strings.HasPrefix(name, "good-") {
			left++
			assert.NoError(t, Running(pod))
			assert.Equal(t, before[name], pod.Status.ContainerStatuses[0].ContainerID, name)
		}
	}
	assert.Equal(t, len(good), left)
	log, err := os.ReadFile(s.agent.LogPath())
	require.NoError(t, err)
	assert.Equal(t, 1, strings.Count(string(log), "A pod is evicted"), "one is enough")
}
