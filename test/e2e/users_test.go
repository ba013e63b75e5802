package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/node/users"
	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// ownUsers requests a user namespace.
func ownUsers(pod *v1.Pod) { pod.Spec.HostUsers = ptr(false) }

// needUsers skips the test if the runtime cannot run pods with user namespaces, as on a kernel without idmapped mounts.
func needUsers(t *testing.T, c *Cluster) {
	t.Helper()
	resp, err := c.Client.Runtime.Status(t.Context(), &cri.StatusRequest{})
	require.NoError(t, err)
	for _, h := range resp.RuntimeHandlers {
		if h.Name == "" && h.Features.GetUserNamespaces() {
			return
		}
	}
	Skip(t, "needs a runtime with user namespaces: %v", resp.RuntimeHandlers)
}

// rangeIn returns the range of host IDs that a container has, and asserts that the pod's record is of it.
func rangeIn(t *testing.T, s *suite, pod *v1.Pod, container string) users.Range {
	t.Helper()
	uid := s.agent.Await(t, pod, within, Running).UID
	var own users.Range
	for _, file := range []string{"uid_map", "gid_map"} {
		var first, host, length uint32
		text := s.Exec(t, FullName(pod), container, "cat", "/proc/self/"+file)
		_, err := fmt.Sscan(text, &first, &host, &length)
		require.NoError(t, err, text)
		require.Zero(t, first)
		require.GreaterOrEqual(t, host, uint32(users.Unit))
		own = users.Range{First: host, Length: length}
		data, err := os.ReadFile(filepath.Join(s.agent.Root, "pods", string(uid), "userns"))
		require.NoError(t, err)
		recorded, err := users.ParseRecord(data)
		require.NoError(t, err)
		assert.Equal(t, own, recorded)
	}
	return own
}

// The users of a pod with hostUsers: false are its own, also for the files in its volumes, and after a restart of the
// agent and of the container.
func TestPodsWithUserNamespaces(t *testing.T) {
	t.Parallel()
	c := NewClusterWith(t, ClusterOptions{BuiltRunc: true})
	c.Preload(t, "pause:1", "busybox:1")
	needUsers(t, c)
	s := &suite{Cluster: c, agent: c.StartAgent(t, AgentOptions{})}
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "of-root"), []byte("text"), 0o600))
	s.agent.PutFile(t, "objects.yaml", `
apiVersion: v1
kind: Secret
metadata: {name: users, namespace: default}
stringData: {key: secret}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: users, namespace: default}
data: {key: config}
`)
	mode := int32(0o440)
	volumes := []Option{
		Mounted("empty", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}),
		Mounted("memory", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}}),
		Mounted("secret", v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "users", DefaultMode: &mode}}),
		Mounted("projected", v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{DefaultMode: &mode,
			Sources: []v1.VolumeProjection{
				{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: v1.LocalObjectReference{Name: "users"}}},
			}}}),
		Mounted("host", hostPath(dir, v1.HostPathDirectory)),
	}
	main, other := Sh("main", Forever), Sh("other", Forever)
	other.SecurityContext = &v1.SecurityContext{RunAsUser: ptr(int64(1000)), RunAsGroup: ptr(int64(1000))}
	pod := MakePod("users", append([]Option{Init(Sh("init", "id -u > /empty/of-init")), Main(main, other),
		ownUsers, func(p *v1.Pod) {
			p.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: ptr(int64(2000))}
		}}, volumes...)...)
	second := MakePod("users-second", Main(Sh("main", Forever)), ownUsers)
	shared := MakePod("users-shared", Main(Sh("main", Forever)))
	for i, p := range []*v1.Pod{pod, second, shared} {
		p.UID = podUID(i)
		s.put(t, p)
	}
	name := FullName(pod)

	own, others := rangeIn(t, s, pod, "main"), rangeIn(t, s, second, "main")
	assert.Equal(t, own, rangeIn(t, s, pod, "other"))
	assert.Equal(t, uint32(users.Unit), own.Length)
	assert.NotEqual(t, own, others)
	s.agent.Await(t, shared, within, Running)
	assert.Contains(t, s.Exec(t, FullName(shared), "main", "cat", "/proc/self/uid_map"), "4294967295")

	t.Run("Processes", func(t *testing.T) {
		for container, uid := range map[string]uint32{"main": own.First, "other": own.First + 1000} {
			info, err := os.Stat(fmt.Sprintf("/proc/%d", s.PID(t, s.Newest(t, name, container).Id)))
			require.NoError(t, err)
			assert.Equal(t, uid, info.Sys().(*syscall.Stat_t).Uid, container)
		}
		assert.Equal(t, "0\n", s.Exec(t, name, "main", "id", "-u"), "exec")
	})
	t.Run("Volumes", func(t *testing.T) {
		stat := func(container, path string) string {
			return s.Exec(t, name, container, "stat", "-L", "-c", "%u:%g", path)
		}
		assert.Equal(t, "0:2000\n", stat("main", "/empty"))
		assert.Equal(t, "0:2000\n", stat("main", "/memory"))
		assert.Equal(t, "0:2000\n", stat("main", "/secret/key"))
		assert.Equal(t, "0:2000\n", stat("main", "/projected/key"))
		assert.Equal(t, "0:0\n", stat("main", "/host/of-root"), "paths of the host as well, as with kubelet")
		assert.Equal(t, "0:0\n", stat("main", "/etc/hosts"))
		assert.Equal(t, "0:0\n", stat("main", "/dev/termination-log"))
		for container, uid := range map[string]string{"main": "0", "other": "1000"} {
			assert.Equal(t, "secret", s.Exec(t, name, container, "cat", "/secret/key"))
			assert.Equal(t, "config", s.Exec(t, name, container, "cat", "/projected/key"))
			for _, volume := range []string{"empty", "memory"} {
				file := "/" + volume + "/of-" + container
				s.Exec(t, name, container, "sh", "-c", "echo text > "+file)
				assert.Equal(t, uid+":2000\n", stat(container, file))
			}
		}
		_, err := s.TryExec(t, name, "other", "cat", "/host/of-root")
		require.Error(t, err, "another user")
		// On the disk, files have the IDs that containers see.
		info, err := os.Stat(filepath.Join(s.agent.Root, "pods", string(pod.UID),
			"volumes/kubernetes.io~empty-dir/empty/of-other"))
		require.NoError(t, err)
		assert.Equal(t, uint32(1000), info.Sys().(*syscall.Stat_t).Uid)
	})
	t.Run("Restarts", func(t *testing.T) {
		before := s.Newest(t, name, "main").Id
		s.agent.Stop(t)
		record := filepath.Join(s.agent.Root, "pods", string(second.UID), "userns")
		require.NoError(t, os.Remove(record), "the runtime knows the range")
		s.agent.Start(t)
		s.agent.WaitHealthy(t)
		s.agent.Await(t, pod, within, Running)
		assert.Equal(t, before, s.Newest(t, name, "main").Id, "it runs on")
		Eventually(t, within, "the record is written again", func() error {
			_, err := os.Stat(record)
			return err
		})
		assert.Equal(t, others, rangeIn(t, s, second, "main"))
		s.KillProcess(t, name, "main")
		s.KillProcess(t, FullName(second), "main")
		Eventually(t, within, "another instance", func() error {
			if s.Newest(t, name, "main").Id == before {
				return errors.New("the same")
			}
			return nil
		})
		assert.Equal(t, own, rangeIn(t, s, pod, "main"))
		third := s.put(t, MakePod("users-third", Main(Sh("main", Forever)), ownUsers))
		now := rangeIn(t, s, third, "main")
		assert.NotEqual(t, own, now)
		assert.NotEqual(t, others, now)
	})
}

// A runtime that does not report user namespaces runs no such pod.
func TestRuntimeWithoutUserNamespaces(t *testing.T) {
	t.Parallel()
	s := newSuiteOn(t, Old, AgentOptions{})
	pod := s.put(t, MakePod("users", Main(Sh("main", Forever)), ownUsers))
	got := s.agent.Await(t, pod, within, Phase(v1.PodFailed))
	assert.Equal(t, users.ReasonUnsupported, got.Status.Reason)
	assert.Contains(t, got.Status.Message,
		"can't set `spec.hostUsers: false`, runtime does not support user namespaces")
	assert.Empty(t, s.Sandboxes(t, FullName(pod)))
}

// A kubelet runs pods with user namespaces, this agent takes them over and starts another one, and a kubelet takes all
// of them back: all keep their users.
func TestKubeletWithUserNamespaces(t *testing.T) {
	Need(t)
	c := NewClusterWith(t, ClusterOptions{BuiltRunc: true})
	c.Preload(t, "pause:1", "busybox:1")
	needUsers(t, c)
	kubelet := &suite{Cluster: c, agent: c.NewAgent(t, AgentOptions{Binary: KubeletBinary(t)})}
	ours := &suite{Cluster: c, agent: c.NewAgent(t, AgentOptions{})}
	var pods []*v1.Pod
	own, id := map[string]users.Range{}, map[string]string{}
	run := func(s *suite) {
		s.agent.Start(t)
		s.agent.WaitHealthy(t)
		pod := MakePod(fmt.Sprintf("users-%d", len(pods)), Main(Sh("c", Forever)), ownUsers,
			Mounted("empty", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}))
		pod.UID = podUID(len(pods))
		pods = append(pods, pod)
		s.agent.Put(t, pod)
		own[pod.Name] = rangeIn(t, s, pod, "c")
		id[pod.Name] = s.Newest(t, FullName(pod), "c").Id
		seen := map[users.Range]bool{}
		for _, p := range pods {
			s.agent.Await(t, p, within, Running, Ready(true))
			assert.Equal(t, id[p.Name], s.Newest(t, FullName(p), "c").Id, "%s runs on", p.Name)
			assert.Equal(t, own[p.Name], rangeIn(t, s, p, "c"), p.Name)
			assert.False(t, seen[own[p.Name]], "%s has the users of another pod", p.Name)
			seen[own[p.Name]] = true
		}
		if len(pods) == 4 {
			return
		}
		s.agent.Stop(t)
	}
	run(kubelet)
	run(ours)
	run(kubelet)
	run(ours)
}
