package agent_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// sized returns a pod in this generation with a limit of memory, and a file that has it.
func sized(generation int64, memory string) *v1.Pod {
	return testpod.With(makePod("web"), func(pod *v1.Pod) {
		pod.Generation, pod.Annotations = generation, map[string]string{
			podspec.AnnotationConfigSource: podspec.SourceAPI}
		list := v1.ResourceList{v1.ResourceMemory: resource.MustParse(memory)}
		pod.Spec.Containers[0].Resources = v1.ResourceRequirements{Requests: list, Limits: list}
		testpod.Volumes(v1.Volume{Name: "info", VolumeSource: v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{
			Items: []v1.DownwardAPIVolumeFile{{Path: "limit", ResourceFieldRef: &v1.ResourceFieldSelector{
				ContainerName: pod.Spec.Containers[0].Name, Resource: "limits.memory",
				Divisor: resource.MustParse("1Mi"),
			}}},
		}}})(pod)
	})
}

func resizeConditions(s v1.PodStatus) []string {
	var out []string
	for _, c := range s.Conditions {
		if c.Type == v1.PodResizePending || c.Type == v1.PodResizeInProgress {
			out = append(out, string(c.Type)+" "+c.Reason)
		}
	}
	return out
}

// The container, the status and the files of a pod have the same resources at each moment: those
// that it holds, not those that it requests.
func TestResize(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		rt := fake.New(fake.Options{})
		var recorder fake.Recorder
		n := startAPINode(t, dir, rt, func(o *kubeletkit.Options) {
			o.Admission.Limits.Allocatable = v1.ResourceList{v1.ResourceMemory: resource.MustParse("256Mi")}
			o.Observe.EveryEvent = recorder.Event
		})
		defer n.stop(t)
		pod := sized(1, "64Mi")
		check := func(observed int64, memory, file string, conditions ...string) {
			t.Helper()
			n.after(5 * time.Second)
			s, _ := n.sink.Latest(pod.UID)
			require.Len(t, s.ContainerStatuses, 1)
			c := s.ContainerStatuses[0]
			assert.Equal(t, memory, c.AllocatedResources.Memory().String(), "allocated")
			assert.Equal(t, memory, s.AllocatedResources.Memory().String(), "allocated to the pod")
			assert.Equal(t, conditions, resizeConditions(s))
			assert.Equal(t, observed, s.ObservedGeneration)
			assert.Zero(t, c.RestartCount)
			data, err := os.ReadFile(filepath.Join(dir, "pods", string(pod.UID),
				"volumes/kubernetes.io~downward-api/info/limit"))
			require.NoError(t, err)
			assert.Equal(t, file, string(data))
		}
		inForce := func() string {
			status, _ := n.RuntimeStatus(pod.UID)
			return status.Newest(pod.Spec.Containers[0].Name).Resources.Limits.Memory().String()
		}
		n.source.Set(pod)
		check(1, "64Mi", "64")
		n.source.Set(sized(2, "128Mi"))
		check(2, "128Mi", "128")
		assert.Equal(t, "128Mi", inForce())
		n.source.Set(sized(3, "512Mi"))
		check(3, "128Mi", "128", "PodResizePending Deferred")

		// Below what it uses: allocated, but not in force.
		rt.SetUsage(fake.Target{}, fake.Usage{Memory: 48 << 20})
		n.source.Set(sized(4, "32Mi"))
		check(4, "32Mi", "32", "PodResizeInProgress Error")
		s, _ := n.sink.Latest(pod.UID)
		assert.Equal(t, "128Mi", s.ContainerStatuses[0].Resources.Limits.Memory().String(), "what is in force")
		assert.Equal(t, "128Mi", inForce())
		rt.SetUsage(fake.Target{}, fake.Usage{Memory: 16 << 20})
		n.after(time.Minute)
		check(4, "32Mi", "32")
		assert.Equal(t, "32Mi", inForce())
		var events []string
		for _, e := range recorder.Events(fake.Target{}) {
			events = append(events, e.Reason)
		}
		assert.Contains(t, events, "ResizeStarted")
		assert.Contains(t, events, "ResizeDeferred")
		assert.Contains(t, events, "ResizeError")
		assert.Equal(t, "ResizeCompleted", events[len(events)-1])
		n.source.Set() // nothing stays mounted
		n.after(time.Minute)
	})
}

// A restarted agent without a record of its own finds what the pod holds in its status. It restarts
// no container, also if a change of its memory would require that.
func TestAPendingResizeAfterARestart(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		rt := fake.New(fake.Options{})
		limit := func(o *kubeletkit.Options) {
			o.Admission.Limits.Allocatable = v1.ResourceList{v1.ResourceMemory: resource.MustParse("256Mi")}
		}
		restarted := func(generation int64, memory string) *v1.Pod {
			return testpod.With(sized(generation, memory), func(pod *v1.Pod) {
				pod.Spec.Containers[0].ResizePolicy = []v1.ContainerResizePolicy{{ResourceName: v1.ResourceMemory,
					RestartPolicy: v1.RestartContainer}}
			})
		}
		n := startAPINode(t, dir, rt, limit)
		n.source.Set(restarted(1, "64M"))
		n.after(5 * time.Second)
		n.source.Set(restarted(2, "512M"))
		n.after(5 * time.Second)
		pod := n.reported(restarted(2, "512M"))
		n.stop(t)

		n = startAPINode(t, dir, rt, limit)
		defer n.stop(t)
		n.source.Set(pod)
		n.after(5 * time.Second)
		s := n.Pods()[0].Status
		assert.Equal(t, v1.PodRunning, s.Phase)
		assert.Equal(t, "64M", s.ContainerStatuses[0].AllocatedResources.Memory().String())
		assert.Equal(t, []string{"PodResizePending Deferred"}, resizeConditions(s))
		assert.Zero(t, s.ContainerStatuses[0].RestartCount)
		n.source.Set(restarted(3, "128M"))
		n.after(time.Minute)
		assert.EqualValues(t, 1, n.Pods()[0].Status.ContainerStatuses[0].RestartCount)
		n.source.Set() // nothing stays mounted
		n.after(time.Minute)
	})
}

// wholePods is a component that holds the memory of pods as a whole, as the cgroups of pods do.
type wholePods struct {
	inner runtime.Inspector
	mu    sync.Mutex
	held  map[types.UID]resource.Quantity
	usage resource.Quantity
	order []string
}

// uses sets the memory that the processes of the pod use.
func (w *wholePods) uses(memory string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.usage = resource.MustParse(memory)
}

func (w *wholePods) Name() string { return "whole pods" }
func (w *wholePods) Prepare(_ context.Context, req lifecycle.PrepareRequest) (out lifecycle.PrepareResponse, _ error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	want, held := *req.Pod.Spec.Resources.Limits.Memory(), w.held[req.Pod.UID]
	inContainer := ""
	for kind, c := range podspec.Containers(&req.Pod.Spec) {
		n := req.Observed.Newest(c.Name)
		if n != nil {
			inContainer = ", container " + n.Resources.Limits.Memory().String()
		}
		if len(runtime.ResizeDue(req.Pod, c, kind, n)) > 0 && held.Cmp(want) > 0 {
			if want.Cmp(w.usage) < 0 {
				return lifecycle.PrepareResponse{ResizeError: "in use"}, nil
			}
			want = held
		}
	}
	if held.Cmp(want) != 0 {
		w.held[req.Pod.UID], out.Changed = want, !held.IsZero()
		w.order = append(w.order, "pod "+want.String()+inContainer)
	}
	return out, nil
}

func (w *wholePods) Inspector(inner runtime.Inspector) runtime.Inspector {
	w.inner = inner
	return w
}
func (w *wholePods) Unwrap() any { return w.inner }
func (w *wholePods) InspectPod(ctx context.Context, ref runtime.PodRef) (*runtime.PodStatus, error) {
	status, err := w.inner.InspectPod(ctx, ref)
	w.mu.Lock()
	defer w.mu.Unlock()
	if held, ok := w.held[ref.UID]; ok && err == nil {
		with := *status
		with.Resources = &v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceMemory: held}}
		status = &with
	}
	return status, err
}

// A pod as a whole grows before its containers and shrinks after them. Its status has what is in force, and a resize
// ends when all have what they are to have.
func TestResizeOfThePodAsAWhole(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		rt := fake.New(fake.Options{})
		whole := &wholePods{held: map[types.UID]resource.Quantity{}}
		var recorder fake.Recorder
		n := startAPINode(t, dir, rt, func(o *kubeletkit.Options) {
			o.Admission.Limits.Allocatable = v1.ResourceList{v1.ResourceMemory: resource.MustParse("256Mi")}
			o.Observe.EveryEvent = recorder.Event
			o.Join = []lifecycle.Component{whole}
		})
		defer n.stop(t)
		pod := func(generation int64, memory string) *v1.Pod {
			return testpod.With(sized(generation, "16Mi"), func(pod *v1.Pod) {
				list := v1.ResourceList{v1.ResourceMemory: resource.MustParse(memory)}
				pod.Spec.Resources = &v1.ResourceRequirements{Requests: list, Limits: list}
				pod.Spec.Containers[0].Resources = v1.ResourceRequirements{} // those of the pod
			})
		}
		uid := pod(1, "64Mi").UID
		check := func(memory, allocated, inContainer string, conditions ...string) {
			t.Helper()
			n.after(5 * time.Second)
			s, _ := n.sink.Latest(uid)
			assert.Equal(t, memory, s.Resources.Limits.Memory().String(), "in force")
			assert.Equal(t, allocated, s.AllocatedResources.Memory().String())
			assert.Equal(t, conditions, resizeConditions(s))
			status, _ := n.RuntimeStatus(uid)
			assert.Equal(t, inContainer, status.Newest("main").Resources.Limits.Memory().String())
			assert.Zero(t, s.ContainerStatuses[0].RestartCount)
		}
		n.source.Set(pod(1, "64Mi"))
		check("64Mi", "64Mi", "64Mi")
		n.source.Set(pod(2, "128Mi"))
		check("128Mi", "128Mi", "128Mi")
		n.source.Set(pod(3, "512Mi"))
		check("128Mi", "128Mi", "128Mi", "PodResizePending Deferred")
		whole.uses("48Mi")
		n.source.Set(pod(4, "32Mi"))
		check("128Mi", "32Mi", "128Mi", "PodResizeInProgress Error")
		whole.uses("16Mi")
		n.after(time.Minute)
		check("32Mi", "32Mi", "32Mi")
		assert.Equal(t, []string{"pod 64Mi", "pod 128Mi, container 64Mi", "pod 32Mi, container 32Mi"}, whole.order)
		var events []string
		for _, e := range recorder.Events(fake.Target{}) {
			if strings.HasPrefix(e.Reason, "Resize") {
				events = append(events, e.Reason)
			}
		}
		assert.Equal(t, []string{"ResizeStarted", "ResizeCompleted", "ResizeDeferred", "ResizeStarted", "ResizeError",
			"ResizeCompleted"}, events)
		n.source.Set() // nothing stays mounted
		n.after(time.Minute)
	})
}
