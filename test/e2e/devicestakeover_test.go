package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// devicePlugins is the directory of device plugins of a kubelet, whatever its root directory is.
const devicePlugins = "/var/lib/kubelet/device-plugins"

// podResources returns which devices the agent reports for the containers, by "pod/container", and the IDs of those
// that it may give.
func podResources(t *testing.T, a *Agent) (held map[string]string, allocatable []string, err error) {
	t.Helper()
	conn, err := grpc.NewClient("unix:"+filepath.Join(a.Root, "pod-resources/kubelet.sock"),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	client := podresources.NewPodResourcesListerClient(conn)
	ids := func(devices []*podresources.ContainerDevices) (list []string) {
		for _, d := range devices {
			list = append(list, d.DeviceIds...)
		}
		slices.Sort(list)
		return list
	}
	all, err := client.GetAllocatableResources(t.Context(), &podresources.AllocatableResourcesRequest{})
	if err != nil {
		return nil, nil, err
	}
	pods, err := client.List(t.Context(), &podresources.ListPodResourcesRequest{})
	if err != nil {
		return nil, nil, err
	}
	held = map[string]string{}
	for _, pod := range pods.PodResources {
		for _, c := range pod.Containers {
			held[pod.Name+"/"+c.Name] = strings.Join(ids(c.Devices), ",")
		}
	}
	return held, ids(all.Devices), nil
}

// A kubelet gives a pod devices of a plugin, this agent takes it over, and a kubelet takes it back. The pod keeps its
// devices and its container, and no other pod gets the devices, whichever of the two starts it. Their root directory is
// not the usual one.
func TestKubeletWithDevices(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"kubelet", "kubelet-1.36"} {
		t.Run(tool, func(t *testing.T) {
			t.Parallel()
			testKubeletWithDevices(t, KubernetesBinary(t, tool))
		})
	}
}

func testKubeletWithDevices(t *testing.T, binary string) {
	c := NewClusterWith(t, ClusterOptions{OwnDirs: []string{filepath.Dir(devicePlugins)}})
	c.Preload(t, "pause:1", "busybox:1")
	ours := &suite{Cluster: c, agent: c.NewAgent(t, AgentOptions{KubeletDirs: true})}
	kubelet := &suite{Cluster: c, agent: c.NewAgent(t, AgentOptions{Binary: binary, KubeletDirs: true})}
	require.NoError(t, os.MkdirAll(c.Own(devicePlugins), 0o750))
	all := []string{"a", "b", "c", "d"}
	plugin, _ := startNullPlugin(t, c.Own(devicePlugins), all...)

	running := map[string]string{} // IDs of containers
	devices := map[string]string{} // IDs of devices, in order, as the container has them
	uids := 0
	pod := func(name string, n int64) *v1.Pod {
		pod := MakePod(name, Main(Sh("main", Forever)), withNulls(n))
		pod.UID = podUID(uids)
		uids++
		return pod
	}
	sorted := func(list string) []string {
		ids := strings.Split(list, ",")
		slices.Sort(ids)
		return ids
	}
	// awaitHeld waits until the agent reports exactly the devices that the pods have.
	awaitHeld := func(s *suite, pods ...*v1.Pod) {
		t.Helper()
		Eventually(t, within, "the devices of pods", func() error {
			held, allocatable, err := podResources(t, s.agent)
			if err != nil {
				return err
			}
			if !slices.Equal(allocatable, all) {
				return fmt.Errorf("%v are allocatable", allocatable)
			}
			want := map[string]string{}
			for _, pod := range pods {
				want[FullName(pod)+"/main"] = strings.Join(sorted(devices[pod.Name]), ",")
			}
			if fmt.Sprint(held) != fmt.Sprint(want) {
				return fmt.Errorf("%v instead of %v", held, want)
			}
			return nil
		})
	}
	run := func(s *suite, pods ...*v1.Pod) {
		t.Helper()
		for _, pod := range pods {
			s.agent.Await(t, pod, within, Running, Restarts("main", 0), health(v1.ResourceHealthStatusHealthy,
				sorted(devices[pod.Name])...))
			assert.Equal(t, running[pod.Name], c.Newest(t, FullName(pod), "main").Id, "%s runs on", pod.Name)
		}
		awaitHeld(s, pods...)
	}
	start := func(s *suite, pods ...*v1.Pod) {
		t.Helper()
		s.agent.Start(t)
		s.agent.WaitHealthy(t)
		run(s, pods...)
	}
	stop := func(s *suite, pods ...*v1.Pod) {
		t.Helper()
		run(s, pods...)
		s.agent.Stop(t)
	}
	put := func(s *suite, pod *v1.Pod, others ...*v1.Pod) {
		t.Helper()
		s.agent.Put(t, pod)
		s.agent.Await(t, pod, within, Running)
		running[pod.Name] = c.Newest(t, FullName(pod), "main").Id
		devices[pod.Name] = strings.TrimSpace(s.Exec(t, FullName(pod), "main", "sh", "-c", "echo $NULLS"))
		s.agent.Await(t, pod, within, health(v1.ResourceHealthStatusHealthy, sorted(devices[pod.Name])...))
		for _, other := range others {
			for _, id := range sorted(devices[pod.Name]) {
				assert.NotContains(t, sorted(devices[other.Name]), id, "%s and %s", pod.Name, other.Name)
			}
		}
		awaitHeld(s, append(others, pod)...)
	}
	refused := func(s *suite, pod *v1.Pod) {
		t.Helper()
		s.agent.Put(t, pod)
		got := s.agent.Await(t, pod, within, Phase(v1.PodFailed))
		assert.Equal(t, "UnexpectedAdmissionError", got.Status.Reason)
		s.agent.Remove(t, pod)
	}
	first, second, third, fourth := pod("first", 2), pod("second", 1), pod("third", 2), pod("fourth", 2)
	start(kubelet)
	put(kubelet, first)

	stop(kubelet, first)
	start(ours, first)
	put(ours, second, first)
	refused(ours, pod("too-many", 2))
	ours.agent.Remove(t, second)
	ours.agent.AwaitGone(t, within, second)
	put(ours, third, first)

	stop(ours, first, third)
	start(kubelet, first, third)
	refused(kubelet, pod("one-more", 1))
	kubelet.agent.Remove(t, first)
	Eventually(t, within, "first pod gone", func() error {
		if n := len(c.Sandboxes(t, FullName(first))); n > 0 {
			return fmt.Errorf("%d sandboxes", n)
		}
		return nil
	})
	put(kubelet, fourth, third)

	stop(kubelet, third, fourth)
	start(ours, third, fourth)
	refused(ours, pod("two-more", 1))
	plugin.mu.Lock()
	defer plugin.mu.Unlock()
	assert.Equal(t, 4, plugin.allocate, "once for each container")
}

// A kubelet has claims prepared for pods, this agent takes the pods over, and a kubelet takes them back. Claims stay
// prepared with the devices that they had, also if a second pod begins to use one, and are unprepared once, after their
// last pod.
func TestKubeletWithDynamicResources(t *testing.T) {
	t.Parallel()
	s := newNodeSuite(t, AgentOptions{})
	ours := s.agent
	kubelet := s.NewAgent(t, AgentOptions{Binary: KubeletBinary(t), Kubeconfig: s.plane.NodeKubeconfig(t, NodeName)})
	cdi := filepath.Join(s.Dir, "cdi")
	require.NoError(t, os.MkdirAll(cdi, 0o755))
	g := &gpus{cdi: cdi, prepared: map[types.UID]string{}, health: kubeletplugin.HealthStatusHealthy}
	s.agent = kubelet
	s.start(t)
	g.start(t, s)
	ns := s.plane.Namespace(t, "dra")
	s.plane.Apply(t, gpuClass+"---"+fmt.Sprintf(gpuClaims, ns))
	shared := v1.PodResourceClaim{Name: "gpu", ResourceClaimName: new("shared")}
	two := v1.PodResourceClaim{Name: "gpu", ResourceClaimTemplateName: new("two")}
	used := v1.ResourceClaim{Name: "gpu"}

	awaitSlices := func() {
		t.Helper()
		Eventually(t, eventually, "slices", func() error {
			if s.slices(t) == 0 {
				return errors.New("there are none")
			}
			return nil
		})
	}
	running := map[string]string{}
	start := func(a *Agent) {
		t.Helper()
		s.agent = a
		s.start(t)
		awaitSlices()
		for name, id := range running {
			s.awaitReported(t, ns, name, Running, Restarts("a", 0))
			assert.Equal(t, id, s.Newest(t, name, "a").Id, "%s runs on", name)
		}
	}
	stop := func() {
		t.Helper()
		for name, id := range running {
			s.await(t, ns, name, Running, Restarts("a", 0))
			assert.Equal(t, id, s.Newest(t, name, "a").Id, "%s runs on", name)
		}
		s.agent.Stop(t)
	}
	create := func(pods ...*v1.Pod) {
		t.Helper()
		s.create(t, ns, pods...)
		for _, pod := range pods {
			s.await(t, ns, pod.Name, Running)
			running[pod.Name] = s.Newest(t, pod.Name, "a").Id
		}
	}
	remove := func(names ...string) {
		t.Helper()
		s.plane.Kubectl(t, append([]string{"delete", "-n", ns, "pod", "--wait=false"}, names...)...)
		for _, name := range names {
			delete(running, name)
			Eventually(t, eventually, "pod "+name+" gone", func() error { return s.plane.NoPod(ns, name) })
		}
	}
	// claim returns the name of the claim of the pod.
	claim := func(pod string) string {
		object, err := s.plane.Client.CoreV1().Pods(ns).Get(t.Context(), pod, metav1.GetOptions{})
		require.NoError(t, err)
		require.Len(t, object.Status.ResourceClaimStatuses, 1)
		return *object.Status.ResourceClaimStatuses[0].ResourceClaimName
	}
	device := func(pod string) string { return s.Exec(t, pod, "a", "sh", "-c", "echo $GPU_ONE") }
	of := map[string]string{}
	awaitSlices()
	create(withGPU("one", shared, used), withGPU("both", two, used))
	of["both"] = claim("both")
	want := device("one")

	// This agent. What either of the two has read from its state, it has prepared again for another pod, which changes
	// nothing.
	stop()
	start(ours)
	assert.Equal(t, 1, g.count("prepare shared"), "not for pods that run")
	create(withGPU("other", shared, used), withGPU("late", two, used))
	of["late"] = claim("late")
	assert.Equal(t, want, device("other"))
	remove("both")
	assert.Equal(t, 1, g.count("unprepare "+of["both"]))

	// The kubelet again.
	stop()
	prepared := g.count("prepare shared")
	start(kubelet)
	assert.Equal(t, prepared, g.count("prepare shared"), "not for pods that run")
	create(withGPU("third", shared, used))
	assert.Equal(t, want, device("third"))
	remove("one")
	assert.Zero(t, g.count("unprepare shared"))
	stop()
	prepared = g.count("prepare shared")

	// This agent ends all of it.
	start(ours)
	assert.Equal(t, prepared, g.count("prepare shared"))
	remove("other", "late")
	assert.Zero(t, g.count("unprepare shared"))
	remove("third")
	assert.NoError(t, g.nothing())
	for _, name := range []string{"shared", of["both"], of["late"]} {
		assert.Equal(t, 1, g.count("unprepare "+name), name)
	}
	state, err := os.ReadFile(filepath.Join(ours.Root, "dra_manager_state"))
	require.NoError(t, err)
	assert.NotContains(t, string(state), "ClaimUID", "%s", state)
}
