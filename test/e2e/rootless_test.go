package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// An agent and a containerd of a user other than root, in a user namespace (KEP-2033), run pods as those of root do.
func TestRootless(t *testing.T) {
	t.Parallel()
	c := NewClusterWith(t, ClusterOptions{Rootless: true})
	c.Preload(t, "pause:1", "busybox:1")
	a := c.StartAgent(t, AgentOptions{Config: map[string]any{"oomScoreAdj": -999, "cgroupRoot": "/"}})
	id := func(pod *v1.Pod) string { return c.Newest(t, FullName(pod), "main").Id }

	web := MakePod("web", Grace(20), Main(Sh("main", "trap 'exit 0' TERM; mkdir /www; echo served >/www/index.html; "+
		"httpd -p 8000 -h /www; echo begins; touch /live; chown 1234:1234 /memory; while :; do sleep 0.1; done")),
		Mounted("memory", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}}))
	web.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: new(int64(1234))}
	main := &web.Spec.Containers[0]
	main.Resources.Limits = v1.ResourceList{v1.ResourceMemory: resource.MustParse("64Mi")}
	main.ReadinessProbe = &v1.Probe{PeriodSeconds: 1, ProbeHandler: v1.ProbeHandler{
		HTTPGet: &v1.HTTPGetAction{Path: "/", Port: intOrString(8000)}}}
	main.LivenessProbe = &v1.Probe{PeriodSeconds: 1, InitialDelaySeconds: 1, FailureThreshold: 1,
		ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"test", "-e", "/live"}}}}
	other := MakePod("other", Main(Sh("main", Forever)))
	ended := MakePod("ended", Policy(v1.RestartPolicyNever), Main(Sh("main", "exit 3")))
	hog := MakePod("hog", Policy(v1.RestartPolicyNever), Main(Sh("main", "exec tail /dev/zero")))
	hog.Spec.Containers[0].Resources.Limits = v1.ResourceList{v1.ResourceMemory: resource.MustParse("32Mi")}
	a.Put(t, web, other, ended, hog)
	a.Await(t, web, within, Running, Ready(true))
	a.Await(t, other, within, Running)
	a.Await(t, ended, within, Phase(v1.PodFailed), Terminated("main", 3))
	oom := a.Await(t, hog, within, Phase(v1.PodFailed), Terminated("main", 137))
	assert.Equal(t, "OOMKilled", Status(oom, "main").State.Terminated.Reason)

	first, process := id(web), c.PID(t, id(web))
	owner := func(path string) uint32 {
		info, err := os.Stat(path)
		require.NoError(t, err)
		return info.Sys().(*syscall.Stat_t).Uid
	}
	assert.EqualValues(t, RootlessUser, owner(fmt.Sprintf("/proc/%d", process)))
	assert.EqualValues(t, RootlessUser, owner(fmt.Sprintf("/proc/%d", a.PID())))
	out, err := a.Command("exec", FullName(web), "--", "cat", "/www/index.html")
	require.NoError(t, err, out)
	assert.Equal(t, "served\n", out)
	out, err = a.Command("exec", FullName(web), "--", "sh", "-c", "cd /sys/fs/cgroup; cat memory.max || cat memory/"+
		"memory.limit_in_bytes")
	require.NoError(t, err, out)
	assert.Contains(t, out, "67108864\n")
	out, err = a.Command("logs", FullName(web))
	require.NoError(t, err, out)
	assert.Equal(t, "begins\n", out)
	log, err := os.ReadFile(a.LogPath())
	require.NoError(t, err)
	for _, line := range []string{"since the agent runs in a user namespace", "The log of the kernel cannot be read"} {
		assert.Equal(t, 1, strings.Count(string(log), line), line)
	}
	assert.NotContains(t, string(log), "level=ERROR")

	// Pods go on without an agent, and the next one continues to probe and end them.
	a.Kill(t)
	assert.NoError(t, syscall.Kill(process, 0))
	a.Start(t)
	a.WaitHealthy(t)
	a.Await(t, web, within, Running, Ready(true), Restarts("main", 0))
	assert.Equal(t, first, id(web))
	_, err = a.Command("exec", FullName(web), "--", "rm", "/live")
	require.NoError(t, err)
	a.Await(t, web, within, Running, Restarts("main", 1))
	a.Remove(t, web, ended, hog)
	a.AwaitGone(t, within, web, ended, hog)
	a.AwaitNoPodDirs(t, within)

	// Without the feature gate, an agent does not start where a kubelet does not.
	a.Stop(t)
	if restricted, err := os.ReadFile("/proc/sys/kernel/dmesg_restrict"); err == nil && string(restricted) == "1\n" {
		a = c.NewAgent(t, AgentOptions{Dir: filepath.Join(c.Dir, "gate"), Config: map[string]any{
			"featureGates": map[string]bool{"KubeletInUserNamespace": false}}})
		a.Start(t)
		Eventually(t, within, "the agent ends", func() error {
			if !a.Exited() {
				return errors.New("it runs")
			}
			return nil
		})
		log, err := os.ReadFile(a.LogPath())
		require.NoError(t, err)
		assert.Contains(t, string(log), "remove the feature gate KubeletInUserNamespace=false")
	}
}

// A node in a user namespace says so, and runs the pods of its cluster.
func TestRootlessNode(t *testing.T) {
	t.Parallel()
	c := NewClusterWith(t, ClusterOptions{Rootless: true})
	c.Preload(t, "pause:1", "busybox:1")
	plane := NewControlPlane(t, c.Net.AsRoot())
	kubeconfig := plane.NodeKubeconfig(t, NodeName)
	require.NoError(t, filepath.WalkDir(plane.ClusterDir(), func(path string, _ os.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(path, RootlessUser, RootlessUser))
	}))
	a := c.StartAgent(t, AgentOptions{Kubeconfig: kubeconfig, Config: map[string]any{"cgroupRoot": "/"}})
	pod := MakePod("web", Main(Sh("main", Forever)))
	pod.Spec.NodeName, pod.Namespace = NodeName, plane.Namespace(t, "rootless")
	_, err := plane.Client.CoreV1().Pods(pod.Namespace).Create(t.Context(), pod, metav1.CreateOptions{})
	require.NoError(t, err)
	plane.AwaitPod(t, pod.Namespace, pod.Name, within, Running, Ready(true))
	node, err := plane.Client.CoreV1().Nodes().Get(t.Context(), NodeName, metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, new(true), node.Status.NodeInfo.RunningInUserNamespace)
	token, err := a.Command("exec", pod.Namespace+"/"+pod.Name, "--", "cat",
		"/var/run/secrets/kubernetes.io/serviceaccount/namespace")
	require.NoError(t, err, token)
	assert.Equal(t, pod.Namespace, token)
	log, err := os.ReadFile(a.LogPath())
	require.NoError(t, err)
	assert.NotContains(t, string(log), "level=ERROR")
}
