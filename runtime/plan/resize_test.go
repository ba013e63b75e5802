package plan_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/plan"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// sizes gives all containers of a pod of the API server a limit of memory, and their instances
// another one.
func sizes(pod *v1.Pod, status *runtime.PodStatus, wanted, inForce string, policy ...v1.ContainerResizePolicy) {
	limits := func(amount string) v1.ResourceRequirements {
		return v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceMemory: resource.MustParse(amount)}}
	}
	pod.Generation, pod.Annotations = 2, map[string]string{podspec.AnnotationConfigSource: podspec.SourceAPI}
	for _, c := range podspec.Containers(&pod.Spec) {
		c.Resources, c.ResizePolicy = limits(wanted), policy
	}
	created := podspec.ResizeHash(pod, &v1.Container{Resources: limits(inForce), ResizePolicy: policy})
	for i := range status.Containers {
		now := limits(inForce)
		status.Containers[i].Resources, status.Containers[i].ResizeHash = &now, created
	}
}

func TestResizes(t *testing.T) {
	restart := v1.ContainerResizePolicy{ResourceName: v1.ResourceMemory, RestartPolicy: v1.RestartContainer}
	for name, tc := range map[string]struct {
		pod, status, probes string
		policy              []v1.ContainerResizePolicy
		resized, want       string
	}{
		"in place":                  {pod: "Always; main m; main n", status: "sandbox 0 ready; m#0 running; n#0 running", resized: "m memory; n memory"},
		"not those that do not run": {pod: "Always; main m; main n", status: "sandbox 0 ready; m#0 exited; n#0 running", resized: "n memory", want: "start m#1"},
		"sidecars before the others": {
			pod: "Always; sidecar s; main m", status: "sandbox 0 ready; s#0 running; m#0 running",
			resized: "s memory; m memory",
		},
		"an init container":    {pod: "Always; init a; main m", status: "sandbox 0 ready; a#0 running", resized: "a memory"},
		"not the ephemeral":    {pod: "Always; main m; ephemeral e", status: "sandbox 0 ready; m#0 running; e#0 running", resized: "m memory"},
		"one that is replaced": {pod: "Always; main m liveness", status: "sandbox 0 ready; m#0 running", probes: "m#0 liveness", want: "kill m#0 LivenessProbe; start m#1"},
		"in a lost sandbox":    {pod: "Always; main m; main n", status: "sandbox 0 dead; m#0 running; n#0 running", want: "kill pod; sandbox 1; start m#1; start n#1"},
		"by a restart": {
			pod: "Never; main m", status: "sandbox 0 ready; m#0 running", policy: []v1.ContainerResizePolicy{restart},
			want: "kill m#0 Resize; start m#1",
		},
		"by a restart of a sidecar": {
			pod: "Always; sidecar s; main m", status: "sandbox 0 ready; s#0 running",
			policy: []v1.ContainerResizePolicy{restart}, want: "kill s#0 Resize; start s#1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			in := plan.Input{Pod: parsePod(t, tc.pod), Status: parseStatus(t, tc.status),
				Probes: parseProbes(tc.probes), Now: now}
			sizes(in.Pod, in.Status, "128Mi", "64Mi", tc.policy...)
			got := plan.Compute(in)
			var resized []string
			for _, r := range got.Resize {
				assert.Equal(t, r.Container.Name, r.Instance.Name)
				resized = append(resized, fmt.Sprint(r.Container.Name, " ", r.Resources[0]))
			}
			assert.Equal(t, tc.resized, strings.Join(resized, "; "))
			assert.Equal(t, tc.want, transcript(got))

			sizes(in.Pod, in.Status, "64Mi", "64Mi", tc.policy...)
			got = plan.Compute(in)
			assert.Empty(t, got.Resize, "nothing to do")
			assert.NotContains(t, transcript(got), plan.ReasonResize)
		})
	}
}

// An instance that was created by another agent has no record of the resources that require a
// restart. It is resized in place.
func TestAResizeWithoutARecord(t *testing.T) {
	in := plan.Input{Pod: parsePod(t, "Always; main m"), Status: parseStatus(t, "sandbox 0 ready; m#0 running"),
		Now: now}
	sizes(in.Pod, in.Status, "128Mi", "64Mi", v1.ContainerResizePolicy{ResourceName: v1.ResourceMemory,
		RestartPolicy: v1.RestartContainer})
	in.Status.Containers[0].ResizeHash = 0
	got := plan.Compute(in)
	assert.Len(t, got.Resize, 1)
	assert.Empty(t, got.Kill)
}

func TestRecordsOfAResize(t *testing.T) {
	in := plan.Input{Pod: parsePod(t, "Always; main m"), Status: parseStatus(t, "sandbox 0 ready; m#3 running"),
		Now: now}
	sizes(in.Pod, in.Status, "128Mi", "64Mi")
	in.Pod.Spec.Containers[0].Resources.Limits[v1.ResourceCPU] = resource.MustParse("1")
	got := plan.Compute(in)
	require.Len(t, got.Resize, 1)
	assert.Equal(t, "ResizeContainer m 3 (cpu, memory)", recorded(t, plan.Records(in, got)))

	restart := v1.ContainerResizePolicy{ResourceName: v1.ResourceMemory, RestartPolicy: v1.RestartContainer}
	sizes(in.Pod, in.Status, "128Mi", "64Mi", restart)
	assert.Equal(t, "StopContainer m 3 Resize (Container m resize requires restart) 30s; StartContainer m 4 Resize",
		recorded(t, plan.Records(in, plan.Compute(in))))
}
