package kubelet

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/node/podresources"
)

// reported returns what the API of pod resources reports of the pod, and of its containers.
func reported(p *placement, pod *v1.Pod) (whole podresources.Resources, of map[string]podresources.Resources) {
	of = map[string]podresources.Resources{}
	for _, source := range p.sources() {
		r := source.OfPod(pod)
		whole.CPUs, whole.Memory = whole.CPUs.Union(r.CPUs), append(whole.Memory, r.Memory...)
		for i := range pod.Spec.Containers {
			c := &pod.Spec.Containers[i]
			r, all := source.Of(pod, c), of[c.Name]
			of[c.Name] = podresources.Resources{CPUs: all.CPUs.Union(r.CPUs), Memory: append(all.Memory, r.Memory...)}
		}
	}
	return whole, of
}

// With the feature gate PodLevelResourceManagers, a pod with resources as a whole, or its container with requests that
// are its limits, gets CPUs and memory of one NUMA node. Without the gate it gets none, and keeps what it has.
func TestPodsWithResourcesAsAWhole(t *testing.T) {
	resources := func(cpu, memory string) v1.ResourceRequirements {
		list := v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse(memory)}
		return v1.ResourceRequirements{Requests: list, Limits: list}
	}
	pod := wholePod("whole")
	whole := resources("3", "2Gi")
	pod.Spec.Resources = &whole
	pod.Spec.Containers = []v1.Container{{Name: "own", Resources: resources("1", "1Gi")}, {Name: "shares"}}
	for _, tc := range []struct{ gate, scope, ofPod, own, shares string }{
		{"true", "pod", "1-3", "1", "2-3"}, {"true", "container", "", "1", "0,2-7"}, {"false", "pod", "", "", "0-7"},
	} {
		root := t.TempDir()
		require.NoError(t, os.MkdirAll(filepath.Join(root, "pods", "whole"), 0o700))
		for _, gate := range []string{tc.gate, "false"} { // and of the next agent
			s := staticSettings(t, root, "--feature-gates=PodLevelResourceManagers="+gate,
				"--topology-manager-policy=single-numa-node", "--topology-manager-scope="+tc.scope)
			p, _, err := opened(t, s, hostOf(8, 16), &listing{})
			require.NoError(t, err)
			require.NoError(t, admitted(t, p, pod))
			for _, c := range []lifecycle.Preparer{p.cpus, p.memory} {
				_, err = c.Prepare(t.Context(), lifecycle.PrepareRequest{Pod: pod})
				require.NoError(t, err)
			}
			ofPod, of := reported(p, pod)
			assert.Equal(t, tc.ofPod, ofPod.CPUs.String())
			assert.Equal(t, tc.own, of["own"].CPUs.String())
			assert.Empty(t, of["shares"].CPUs.List())
			assert.Empty(t, of["shares"].Memory)
			assert.Equal(t, tc.ofPod != "", len(ofPod.Memory) == 1)
			assert.Equal(t, tc.own != "", len(of["own"].Memory) == 1)
			edits, err := p.cpus.EditContainer(t.Context(), pod, &pod.Spec.Containers[1])
			require.NoError(t, err)
			assert.Equal(t, tc.shares, edits.CPUSet)
			assert.False(t, edits.NoCPUQuota)
		}
	}
}
