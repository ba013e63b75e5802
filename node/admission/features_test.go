package admission_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/node/admission"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// restarts gives the containers a restart rule with the action.
func restarts(action v1.ContainerRestartRuleAction) testpod.Option {
	return func(p *v1.Pod) {
		for i := range p.Spec.Containers {
			p.Spec.Containers[i].RestartPolicyRules = []v1.ContainerRestartRule{{Action: action}}
		}
	}
}

// hostNetworkOfUsers is a pod in the network of the host with users of its own.
func hostNetworkOfUsers(p *v1.Pod) { p.Spec.HostNetwork, p.Spec.HostUsers = true, new(false) }

// claiming is a pod with a claim for a device.
func claiming(p *v1.Pod) {
	p.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "gpu", ResourceClaimName: new("gpu")}}
}

// claimed is a pod for whose extended resources the scheduler has made a claim.
func claimed(p *v1.Pod) {
	p.Status.ExtendedResourceClaimStatus = &v1.PodExtendedResourceClaimStatus{ResourceClaimName: "gpu"}
}

// A pod that needs a feature that the node does not declare is refused with kubelet's reason
// and message, a static pod as well.
func TestDeclaredFeatures(t *testing.T) {
	const restartAll, users = "RestartAllContainersOnContainerExits", "UserNamespacesHostNetworkSupport"
	refused := func(features string) string {
		return "PodFeatureUnsupported: Pod requires node features that are not available: " + features
	}
	for name, tc := range map[string]struct {
		pod      *v1.Pod
		declared []string
		want     string
	}{
		"nothing needed":                {pod: pod("p", nil)},
		"action that needs no feature":  {pod: pod("p", nil, restarts(v1.ContainerRestartRuleActionRestart))},
		"not declared":                  {pod: pod("p", nil, restarts(v1.ContainerRestartRuleActionRestartAllContainers)), want: refused(restartAll)},
		"not declared, static":          {pod: pod("p", nil, testpod.Static, restarts(v1.ContainerRestartRuleActionRestartAllContainers)), want: refused(restartAll)},
		"not declared, init container":  {pod: pod("p", nil, restarts(v1.ContainerRestartRuleActionRestartAllContainers), initOnly), want: refused(restartAll)},
		"another one declared":          {pod: pod("p", nil, restarts(v1.ContainerRestartRuleActionRestartAllContainers)), declared: []string{"ExtendWebSocketsToKubelet"}, want: refused(restartAll)},
		"declared":                      {pod: pod("p", nil, restarts(v1.ContainerRestartRuleActionRestartAllContainers)), declared: []string{restartAll}},
		"declared beside unknown ones":  {pod: pod("p", nil, restarts(v1.ContainerRestartRuleActionRestartAllContainers)), declared: []string{"example.com/Z", restartAll, "A"}},
		"users, not declared":           {pod: pod("p", nil, hostNetworkOfUsers), want: refused(users)},
		"users, declared":               {pod: pod("p", nil, hostNetworkOfUsers), declared: []string{users}},
		"two, not declared":             {pod: pod("p", nil, hostNetworkOfUsers, restarts(v1.ContainerRestartRuleActionRestartAllContainers)), want: refused(restartAll + ", " + users)},
		"two, one declared":             {pod: pod("p", nil, hostNetworkOfUsers, restarts(v1.ContainerRestartRuleActionRestartAllContainers)), declared: []string{users}, want: refused(restartAll)},
		"resource claims":               {pod: pod("p", nil, claiming), declared: []string{restartAll, users}, want: "PodFeatureUnsupported: The node does not support resource claims"},
		"claim of an extended resource": {pod: pod("p", nil, claimed), want: "PodFeatureUnsupported: The node does not support resource claims"},
		"another failure comes first":   {pod: pod("p", list("memory", "2000"), hostNetworkOfUsers), want: "OutOfmemory: Node didn't have enough resource: memory, requested: 2000, used: 0, capacity: 1000"},
	} {
		t.Run(name, func(t *testing.T) {
			a, err := admission.New(admission.Options{
				Node:             func() admission.Node { return admission.Node{Node: node(), Confirmed: true} },
				DeclaredFeatures: func() []string { return tc.declared },
			})
			require.NoError(t, err)
			err = admit(a, lifecycle.AdmitRequest{Pod: tc.pod})
			if tc.want == "" {
				require.NoError(t, err)
				return
			}
			var refusal *runtime.TerminalError
			require.ErrorAs(t, err, &refusal)
			assert.Equal(t, tc.want, refusal.Reason+": "+refusal.Message)
		})
	}
}

// On a node with a component that prepares claims, pods with claims run, and extended resources that are backed by a
// claim are no resources of the node (KEP-5004).
func TestResourceClaims(t *testing.T) {
	a, err := admission.New(admission.Options{
		Node:           func() admission.Node { return admission.Node{Node: node(), Confirmed: true} },
		ResourceClaims: true,
	})
	require.NoError(t, err)
	require.NoError(t, admit(a, lifecycle.AdmitRequest{Pod: pod("p", nil, claiming)}))
	const class = "deviceclass.resource.kubernetes.io/gpu"
	extended := pod("p", list(class, "1"), claimed)
	assert.Equal(t, "OutOf"+class, reason(t, admit(a, lifecycle.AdmitRequest{Pod: extended})),
		"the claim is not for it")
	extended = extended.DeepCopy()
	extended.Status.ExtendedResourceClaimStatus.RequestMappings = []v1.ContainerExtendedResourceRequest{
		{ContainerName: extended.Spec.Containers[0].Name, ResourceName: class, RequestName: "container-0-request-0"},
	}
	require.NoError(t, admit(a, lifecycle.AdmitRequest{Pod: extended}))
	assert.Contains(t, extended.Spec.Containers[0].Resources.Requests, v1.ResourceName(class), "the pod is not changed")
	big := pod("p", list(class, "1", "memory", "2000"), claimed)
	big.Status = *extended.Status.DeepCopy()
	assert.Equal(t, "OutOfmemory", reason(t, admit(a, lifecycle.AdmitRequest{Pod: big})))
}

// initOnly makes the containers of the pod init containers.
func initOnly(p *v1.Pod) {
	p.Spec.InitContainers = p.Spec.Containers
	p.Spec.Containers = []v1.Container{{Name: "other"}}
}

// The resize of a critical pod preempts a pod, unless that is the scheduler's task.
func TestDeferResizes(t *testing.T) {
	for deferred, want := range map[bool]string{false: "", true: "OutOfmemory"} {
		a, err := admission.New(admission.Options{
			Node:         func() admission.Node { return admission.Node{Node: node(), Confirmed: true} },
			DeferResizes: deferred,
		})
		require.NoError(t, err)
		req := lifecycle.AdmitRequest{Pod: pod("p", list("memory", "800"), priority(critical)),
			Active: []*v1.Pod{pod("q", list("memory", "900"))}}
		resize := req
		resize.Held = pod("p", list("memory", "100"), priority(critical))
		err = admit(a, resize)
		if want == "" {
			require.NoError(t, err)
		} else {
			assert.Equal(t, want, reason(t, err))
		}
		require.NoError(t, admit(a, req), "a new pod preempts")
	}
}

// An update that no API server makes needs no feature.
func TestUpdateOfNoAPIServer(t *testing.T) {
	a, err := admission.New(admission.Options{Node: func() admission.Node { return admission.Node{Node: node()} }})
	require.NoError(t, err)
	limit := resource.MustParse("1Mi")
	volume := func(v v1.VolumeSource) *v1.Pod {
		p := pod("p", nil)
		p.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v}}
		return p
	}
	memory := volume(v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory,
		SizeLimit: &limit}})
	assert.Empty(t, a.CheckUpdate(volume(v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/"}}), memory))
	more := memory.DeepCopy()
	more.Spec.Volumes[0].EmptyDir.SizeLimit = new(resource.MustParse("2Mi"))
	assert.Contains(t, a.CheckUpdate(memory, more), "InPlacePodVerticalScalingMemoryBackedVolumes")
}

// No pod ends for a critical pod that the node cannot run.
func TestNoPreemptionForAMissingFeature(t *testing.T) {
	a, err := admission.New(admission.Options{
		Node: func() admission.Node { return admission.Node{Node: node(), Confirmed: true} },
	})
	require.NoError(t, err)
	p := pod("p", list("memory", "800"), priority(critical), hostNetworkOfUsers)
	assert.Equal(t, "PodFeatureUnsupported",
		reason(t, admit(a, lifecycle.AdmitRequest{Pod: p, Active: []*v1.Pod{pod("q", list("memory", "900"))}})))
}
