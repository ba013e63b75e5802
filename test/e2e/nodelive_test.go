package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// soon is how long a change may take from the API server to a file or to a status. It takes
// much less than a second; with kubelet a minute is usual.
const soon = 15 * time.Second

// awaitOutput waits until a command in a container has the output, and logs how long it took.
func (s *nodeSuite) awaitOutput(t *testing.T, what, pod, want string, command ...string) {
	t.Helper()
	began := time.Now()
	Eventually(t, soon, what, func() error {
		if got := s.Exec(t, pod, "a", command...); got != want {
			return fmt.Errorf("it is %q, not %q", got, want)
		}
		return nil
	})
	t.Logf("%s after %v", what, time.Since(began).Round(time.Millisecond))
}

// change patches an object of the name, and returns when a watch of the API server delivered the
// change. The agent watches the object in the same way.
func (s *nodeSuite) change(t *testing.T, ns, kind, name, patch string) time.Time {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	client := s.plane.Client.CoreV1().RESTClient()
	version := func(object runtime.Object, err error) string {
		t.Helper()
		require.NoError(t, err)
		m, err := meta.Accessor(object)
		require.NoError(t, err)
		return m.GetResourceVersion()
	}
	before := version(client.Get().Namespace(ns).Resource(kind).Name(name).Do(ctx).Get())
	w, err := client.Get().Namespace(ns).Resource(kind).VersionedParams(&metav1.ListOptions{
		Watch: true, FieldSelector: "metadata.name=" + name, ResourceVersion: before,
	}, scheme.ParameterCodec).Watch(ctx)
	require.NoError(t, err)
	defer w.Stop()
	after := version(client.Patch(types.MergePatchType).Namespace(ns).Resource(kind).Name(name).Body([]byte(patch)).Do(
		ctx).Get())
	for event := range w.ResultChan() { // a busy API server may end it early
		if m, err := meta.Accessor(event.Object); err == nil && m.GetResourceVersion() == after {
			break
		}
	}
	return time.Now()
}

// What changes in the API is soon in the files of the pods.
func testLiveUpdates(t *testing.T, s *nodeSuite, ns string) {
	s.plane.Kubectl(t, "create", "-n", ns, "configmap", "live", "--from-literal=key=0")
	s.plane.Kubectl(t, "create", "-n", ns, "secret", "generic", "live", "--from-literal=key=0")
	c := Sh("a", Forever)
	c.VolumeMounts = []v1.VolumeMount{{Name: "cm", MountPath: "/cm"}, {Name: "secret", MountPath: "/secret"},
		{Name: "meta", MountPath: "/meta"}}
	pod := MakePod("live", Main(c),
		Volume("cm",
			v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{
				LocalObjectReference: v1.LocalObjectReference{Name: "live"}}}),
		Volume("secret", v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "live"}}),
		Volume("meta", v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{Items: []v1.DownwardAPIVolumeFile{
			{Path: "labels", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.labels"}},
			{Path: "annotation", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.annotations['live']"}},
		}}}))
	pod.Labels, pod.Annotations = map[string]string{"live": "0"}, map[string]string{"live": "0"}
	s.create(t, ns, pod)
	s.await(t, ns, "live", Running)
	// The files as the process of the container sees them.
	root := fmt.Sprintf("/proc/%d/root", s.PID(t, s.Newest(t, "live", "a").Id))
	for i := 1; i <= 3; i++ {
		value := fmt.Sprint(i)
		for _, change := range []struct{ kind, patch, file, want string }{
			{"configmaps", `{"data":{"key":%q}}`, "/cm/key", value},
			{"secrets", `{"stringData":{"key":%q}}`, "/secret/key", value},
			{"pods", `{"metadata":{"annotations":{"live":%q}}}`, "/meta/annotation", value},
			{"pods", `{"metadata":{"labels":{"live":%q}}}`, "/meta/labels", fmt.Sprintf("live=%q", value)},
		} {
			delivered := s.change(t, ns, change.kind, "live", fmt.Sprintf(change.patch, value))
			Eventually(t, soon, change.file, func() error {
				if got, err := os.ReadFile(root + change.file); err != nil || string(got) != change.want {
					return fmt.Errorf("it is %q, not %q (%v)", got, change.want, err)
				}
				return nil
			})
			t.Logf("%s is new %v after a watch delivered the change", change.file,
				time.Since(delivered).Round(time.Millisecond))
		}
	}
	assert.Zero(t, Status(s.await(t, ns, "live", Running), "a").RestartCount)
	s.plane.Kubectl(t, "delete", "-n", ns, "pod", "live")
	s.awaitGone(t, ns, "live")
}

// resized is fulfilled if the container has the memory, and the pod the conditions of a resize.
func resized(memory string, conditions ...string) Condition {
	return func(pod *v1.Pod) error {
		if r := Status(pod, "a").Resources; r == nil || r.Limits.Memory().String() != memory {
			return fmt.Errorf("resources %+v", r)
		}
		return resizeConditions(pod, conditions)
	}
}

// resizeConditions returns an error if the pod has other conditions of a resize, or its latest generation was not
// observed.
func resizeConditions(pod *v1.Pod, conditions []string) error {
	var got []string
	for _, c := range pod.Status.Conditions {
		if c.Type == v1.PodResizePending || c.Type == v1.PodResizeInProgress {
			got = append(got, fmt.Sprintf("%s %s", c.Type, c.Reason))
		}
	}
	if strings.Join(got, ", ") != strings.Join(conditions, ", ") || pod.Status.ObservedGeneration != pod.Generation {
		return fmt.Errorf("generation %d of %d, conditions %q", pod.Status.ObservedGeneration, pod.Generation, got)
	}
	return nil
}

// A resize changes the container while it runs, and then its status and its files, or none of
// them.
func testResize(t *testing.T, s *nodeSuite, ns string) {
	c := Sh("a", Forever)
	size := v1.ResourceList{v1.ResourceCPU: resource.MustParse("100m"), v1.ResourceMemory: resource.MustParse("64Mi")}
	c.Resources = v1.ResourceRequirements{Requests: size, Limits: size}
	c.VolumeMounts = []v1.VolumeMount{{Name: "size", MountPath: "/size"}}
	pod := MakePod("resized", Main(c),
		Volume("size", v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{Items: []v1.DownwardAPIVolumeFile{
			{Path: "cpu", ResourceFieldRef: &v1.ResourceFieldSelector{ContainerName: "a", Resource: "limits.cpu", Divisor: resource.MustParse("1m")}},
			{Path: "memory", ResourceFieldRef: &v1.ResourceFieldSelector{ContainerName: "a", Resource: "limits.memory", Divisor: resource.MustParse("1Ki")}},
		}}}))
	s.create(t, ns, pod)
	first := s.await(t, ns, "resized", Running, resized("64Mi"))
	resize := func(cpu, memory string) {
		t.Helper()
		both := fmt.Sprintf(`{"cpu":%q,"memory":%q}`, cpu, memory)
		s.plane.Kubectl(t, "patch", "-n", ns, "pod", "resized", "--subresource=resize", "-p",
			fmt.Sprintf(`{"spec":{"containers":[{"name":"a","resources":{"requests":%s,"limits":%s}}]}}`, both, both))
	}
	files := func(cpu, memory string) {
		t.Helper()
		s.awaitOutput(t, "files", "resized", cpu+" "+memory, "sh", "-c", "echo -n $(cat /size/cpu) $(cat /size/memory)")
	}
	inForce := func(bytes int64) {
		t.Helper()
		got := s.Exec(t, "resized", "a", "sh", "-c", "cat /sys/fs/cgroup/memory.max 2>/dev/null || cat "+
			"/sys/fs/cgroup/memory/memory.limit_in_bytes")
		assert.Equal(t, fmt.Sprint(bytes), strings.TrimSpace(got))
	}
	files("100", "65536")
	resize("200m", "128Mi")
	s.await(t, ns, "resized", resized("128Mi"))
	files("200", "131072")
	inForce(128 << 20)

	// More than is free: the API server lets no pod request more than the whole node has.
	holder := Sh("a", Forever)
	holder.Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse("300m")}
	s.create(t, ns, MakePod("holder", Grace(1), Main(holder)))
	s.await(t, ns, "holder", Running)
	most := s.awaitNode(t, nodeReady).Status.Allocatable.Cpu().MilliValue() - 200
	resize(fmt.Sprintf("%dm", most), "128Mi")
	pending := s.await(t, ns, "resized", resized("128Mi", "PodResizePending Deferred"))
	assert.Equal(t, "200m", Status(pending, "a").AllocatedResources.Cpu().String())
	files("200", "131072")
	s.plane.Kubectl(t, "delete", "-n", ns, "pod", "holder")
	s.await(t, ns, "resized", resized("128Mi"))
	files(fmt.Sprint(most), "131072")

	resize("200m", "16Ki") // less than the container uses
	s.await(t, ns, "resized", resized("128Mi", "PodResizeInProgress Error"))
	inForce(128 << 20)
	resize("300m", "96Mi")
	last := s.await(t, ns, "resized", resized("96Mi"))
	files("300", "98304")
	inForce(96 << 20)
	adopted(t, first, last)
	Eventually(t, within, "events", func() error {
		out := s.plane.Kubectl(t, "get", "-n", ns, "events")
		for _, reason := range []string{"ResizeStarted", "ResizeCompleted", "ResizeDeferred", "ResizeError"} {
			if !strings.Contains(out, reason) {
				return errors.New(out)
			}
		}
		return nil
	})
	s.plane.Kubectl(t, "delete", "-n", ns, "pod", "resized")
	s.awaitGone(t, ns, "resized")
}

// Pods that use more storage than they may are evicted with kubelet's words, and their deletion
// leaves nothing.
func testStorageLimits(t *testing.T, s *nodeSuite, ns string) {
	limited := func(name, script string) *v1.Pod {
		c := Sh("a", script+"; "+Forever)
		c.Resources.Limits = v1.ResourceList{v1.ResourceEphemeralStorage: resource.MustParse("4Mi")}
		other := Sh("b", Forever)
		other.Resources.Limits = v1.ResourceList{v1.ResourceEphemeralStorage: resource.MustParse("1Gi")}
		return MakePod(name, Grace(1), Main(c, other))
	}
	volume := Sh("a", "dd if=/dev/zero of=/data/big bs=1M count=8; "+Forever)
	volume.VolumeMounts = []v1.VolumeMount{{Name: "data", MountPath: "/data"}}
	size := resource.MustParse("4Mi")
	data := MakePod("limit-volume", Grace(1), Main(volume),
		Volume("data", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{SizeLimit: &size}}))
	layer, logs := limited("limit-layer", "dd if=/dev/zero of=/big bs=1M count=8"),
		limited("limit-logs", "yes 0123456789012345678901234567890123456789 | head -c 8000000")
	within4Mi := limited("limit-kept", "dd if=/dev/zero of=/small bs=1M count=1")
	s.create(t, ns, data, layer, logs, within4Mi)
	evicted(t, s, ns, data.Name, `Usage of EmptyDir volume "data" exceeds the limit "4Mi". `)
	for _, pod := range []*v1.Pod{layer, logs} {
		evicted(t, s, ns, pod.Name, `Container a exceeded its local ephemeral storage limit "4Mi". `)
	}
	s.await(t, ns, within4Mi.Name, Running)
	names := []string{data.Name, layer.Name, logs.Name, within4Mi.Name}
	s.plane.Kubectl(t, append([]string{"delete", "-n", ns, "pod"}, names...)...)
	s.awaitGone(t, ns, names...)
}

// evicted waits until the pod has been evicted with the message, and its event is there.
func evicted(t *testing.T, s *nodeSuite, ns, name, message string) {
	t.Helper()
	pod := s.await(t, ns, name, Phase(v1.PodFailed))
	assert.Equal(t, "Evicted", pod.Status.Reason)
	assert.Equal(t, message, pod.Status.Message)
	assert.NoError(t, s.noRunning(t, name))
	Eventually(t, within, "event", func() error {
		events, err := s.plane.Client.CoreV1().Events(ns).List(t.Context(),
			metav1.ListOptions{FieldSelector: "reason=Evicted,involvedObject.name=" + name})
		if err == nil && (len(events.Items) != 1 || events.Items[0].Message != message ||
			events.Items[0].Type != v1.EventTypeWarning) {
			err = fmt.Errorf("%+v", events.Items)
		}
		return err
	})
}

// A pod is deleted while its image is on the way: the pull ends with it.
func testDeleteWhilePulling(t *testing.T, s *nodeSuite, ns string) {
	release := s.Registry.Hold("busybox:held")
	defer release()
	c := Sh("a", Forever)
	c.Image = s.Registry.Image("busybox:held")
	s.create(t, ns, MakePod("pulling", Main(c)))
	Eventually(t, within, "the layer is requested", func() error {
		if s.Registry.Held("busybox:held") == 0 {
			return errors.New("not yet")
		}
		return nil
	})
	began := time.Now()
	s.plane.Kubectl(t, "delete", "-n", ns, "pod", "pulling")
	s.awaitGone(t, ns, "pulling")
	assert.Less(t, time.Since(began), 30*time.Second, "the pull is still held")
	assert.NotZero(t, s.Registry.Held("busybox:held"))
}

// A resize of the resources of a pod as a whole changes its cgroup, and those of its containers without limits of their
// own.
func testResizePod(t *testing.T, s *nodeSuite, ns string) {
	resources := func(cpu, memory string) *v1.ResourceRequirements {
		list := v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse(memory)}
		return &v1.ResourceRequirements{Requests: list, Limits: list}
	}
	own := Sh("own", Forever)
	own.Resources = *resources("50m", "16Mi")
	pod := MakePod("whole", Main(own, Sh("a", Forever)))
	pod.Spec.Resources = resources("100m", "64Mi")
	s.create(t, ns, pod)
	// has is fulfilled if the status has these resources in force, and the conditions.
	has := func(cpu, memory string, conditions ...string) Condition {
		return func(pod *v1.Pod) error {
			if r := pod.Status.Resources; r == nil || r.Requests.Cpu().String() != cpu ||
				r.Limits.Cpu().String() != cpu || r.Limits.Memory().String() != memory {
				return fmt.Errorf("resources of the pod %+v", r)
			}
			return resizeConditions(pod, conditions)
		}
	}
	// inForce asserts what the kernel has for the pod, and for the container without limits.
	inForce := func(pod *v1.Pod, milli, bytes int64) {
		t.Helper()
		at := s.CgroupRoot() + "/kubepods/pod" + string(pod.UID) // Guaranteed
		for _, path := range []string{at, at + "/" + s.Newest(t, pod.Name, "a").Id} {
			for file, want := range map[string]int64{
				"cpu%s/cpu.shares": milli * 1024 / 1000, "cpu%s/cpu.cfs_quota_us": milli * 100, "memory%s/memory.limit_in_bytes": bytes,
			} {
				data, err := os.ReadFile("/sys/fs/cgroup/" + fmt.Sprintf(file, path))
				require.NoError(t, err)
				assert.Equal(t, fmt.Sprint(want), strings.TrimSpace(string(data)), file, path)
			}
		}
	}
	resize := func(cpu, memory string) {
		t.Helper()
		both := fmt.Sprintf(`{"cpu":%q,"memory":%q}`, cpu, memory)
		s.plane.Kubectl(t, "patch", "-n", ns, "pod", "whole", "--subresource=resize",
			"-p", fmt.Sprintf(`{"spec":{"resources":{"requests":%s,"limits":%s}}}`, both, both))
	}
	inForce(s.await(t, ns, "whole", Running, has("100m", "64Mi")), 100, 64<<20)
	resize("150m", "128Mi")
	inForce(s.await(t, ns, "whole", has("150m", "128Mi")), 150, 128<<20)
	resize("80m", "48Mi")
	inForce(s.await(t, ns, "whole", has("80m", "48Mi")), 80, 48<<20)

	// More than is free: the API server lets no pod request more than the whole node has.
	holder := Sh("a", Forever)
	holder.Resources.Requests = v1.ResourceList{v1.ResourceMemory: resource.MustParse("300Mi")}
	s.create(t, ns, MakePod("holder", Grace(1), Main(holder)))
	s.await(t, ns, "holder", Running)
	resize("80m", fmt.Sprint(s.awaitNode(t, nodeReady).Status.Allocatable.Memory().Value()-200<<20))
	pending := s.await(t, ns, "whole", has("80m", "48Mi", "PodResizePending Deferred"))
	assert.Equal(t, "48Mi", pending.Status.AllocatedResources.Memory().String())

	s.Exec(t, "whole", "a", "dd", "if=/dev/zero", "of=/dev/shm/held", "bs=1M", "count=24")
	resize("100m", "20Mi") // less than the pod uses: nothing is resized
	s.plane.Kubectl(t, "delete", "-n", ns, "pod", "holder")
	held := s.await(t, ns, "whole", has("80m", "48Mi", "PodResizeInProgress Error"))
	assert.Equal(t, "20Mi", held.Status.AllocatedResources.Memory().String())
	inForce(held, 80, 48<<20)
	s.Exec(t, "whole", "a", "rm", "/dev/shm/held")
	last := s.await(t, ns, "whole", has("100m", "20Mi"))
	inForce(last, 100, 20<<20)
	for _, name := range []string{"own", "a"} {
		assert.Zero(t, Status(last, name).RestartCount)
	}
}
