package podspec_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

func TestOrigin(t *testing.T) {
	with := func(annotations ...string) *v1.Pod {
		pod := &v1.Pod{}
		for i := 0; i < len(annotations); i += 2 {
			metav1.SetMetaDataAnnotation(&pod.ObjectMeta, annotations[i], annotations[i+1])
		}
		return pod
	}
	assert.False(t, podspec.IsStatic(with()), "without a source nothing is known")
	assert.False(t, podspec.IsStatic(with(podspec.AnnotationConfigSource, "api")))
	assert.True(t, podspec.IsStatic(with(podspec.AnnotationConfigSource, "file")))
	assert.True(t, podspec.IsStatic(with(podspec.AnnotationConfigSource, "http")))
	assert.False(t, podspec.IsMirror(with(podspec.AnnotationConfigSource, "api")))
	assert.True(t, podspec.IsMirror(with(podspec.AnnotationConfigMirror, "")))
}

func TestIsPhaseTerminal(t *testing.T) {
	for phase, want := range map[v1.PodPhase]bool{
		"": false, v1.PodPending: false, v1.PodRunning: false, v1.PodUnknown: false, v1.PodSucceeded: true, v1.PodFailed: true,
	} {
		assert.Equal(t, want, podspec.IsPhaseTerminal(phase), phase)
	}
}

func TestContainers(t *testing.T) {
	spec := &v1.PodSpec{
		InitContainers: []v1.Container{{Name: "i1"}, {Name: "i2"}},
		Containers:     []v1.Container{{Name: "m1"}, {Name: "m2"}},
		EphemeralContainers: []v1.EphemeralContainer{
			{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "e1"}}},
	}
	for stopAt, want := range []string{"", "i1:1", "i1:1 i2:1", "i1:1 i2:1 m1:0", "i1:1 i2:1 m1:0 m2:0",
		"i1:1 i2:1 m1:0 m2:0 e1:2"} {
		got := ""
		for kind, c := range podspec.Containers(spec) {
			if stopAt == 0 {
				break
			}
			if got != "" {
				got += " "
			}
			got += fmt.Sprint(c.Name, ":", int(kind))
			if stopAt--; stopAt == 0 {
				break
			}
		}
		assert.Equal(t, want, got)
	}
	for name, want := range map[string]podspec.ContainerKind{"i2": podspec.InitContainer, "m1": podspec.MainContainer,
		"e1": podspec.EphemeralContainer} {
		c, kind := podspec.FindContainer(spec, name)
		if assert.NotNil(t, c, name) {
			assert.Equal(t, name, c.Name)
			assert.Equal(t, want, kind)
		}
	}
	c, _ := podspec.FindContainer(spec, "none")
	assert.Nil(t, c)
	c, _ = podspec.FindContainer(spec, "m2")
	assert.Same(t, &spec.Containers[1], c)
}

func TestShouldRestart(t *testing.T) {
	const (
		always, onFailure, never = "Always", "OnFailure", "Never"
		in, notIn                = v1.ContainerRestartRuleOnExitCodesOpIn, v1.ContainerRestartRuleOnExitCodesOpNotIn
	)
	type rules = []v1.ContainerRestartRule
	rule := func(action string, op v1.ContainerRestartRuleOnExitCodesOperator, codes ...int32) v1.ContainerRestartRule {
		return v1.ContainerRestartRule{
			Action:    v1.ContainerRestartRuleAction(action),
			ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: op, Values: codes},
		}
	}
	for _, tc := range []struct {
		name     string
		pod, own string
		rules    rules
		kind     podspec.ContainerKind
		// restarts after exit codes 0, 1, 42
		want [3]bool
	}{
		{"always", always, "", nil, podspec.MainContainer, [3]bool{true, true, true}},
		{"not defaulted", "", "", nil, podspec.MainContainer, [3]bool{true, true, true}},
		{"on failure", onFailure, "", nil, podspec.MainContainer, [3]bool{false, true, true}},
		{"never", never, "", nil, podspec.MainContainer, [3]bool{}},

		{"own always", never, always, nil, podspec.MainContainer, [3]bool{true, true, true}},
		{"own on failure", always, onFailure, nil, podspec.MainContainer, [3]bool{false, true, true}},
		{"own never", always, never, nil, podspec.MainContainer, [3]bool{}},
		{"own of a later API", onFailure, "Perhaps", nil, podspec.MainContainer, [3]bool{false, true, true}},

		{"rule in", always, never, rules{rule("Restart", in, 42)}, podspec.MainContainer, [3]bool{false, false, true}},
		{"rule in several", always, never, rules{rule("Restart", in, 1, 42)}, podspec.MainContainer, [3]bool{false, true, true}},
		{"rule not in", always, never, rules{rule("Restart", notIn, 0, 1)}, podspec.MainContainer, [3]bool{false, false, true}},
		{"rule and policy", never, onFailure, rules{rule("Restart", in, 0)}, podspec.MainContainer, [3]bool{true, true, true}},
		{"second rule", never, never, rules{rule("Restart", in, 1), rule("Restart", in, 42)}, podspec.MainContainer, [3]bool{false, true, true}},
		{"rule restarts all", never, never, rules{rule("RestartAllContainers", in, 42)}, podspec.MainContainer, [3]bool{false, false, true}},
		{"first match decides", never, never, rules{rule("Later", in, 42), rule("Restart", in, 42)}, podspec.MainContainer, [3]bool{}},
		{"rule without codes", never, never, rules{{Action: "Restart"}}, podspec.MainContainer, [3]bool{}},
		{"rule of a later operator", never, never, rules{rule("Restart", "Above", 0)}, podspec.MainContainer, [3]bool{}},
		{"rule without own policy", never, "", rules{rule("Restart", in, 42)}, podspec.MainContainer, [3]bool{}},

		{"init under always", always, "", nil, podspec.InitContainer, [3]bool{false, true, true}},
		{"init not defaulted", "", "", nil, podspec.InitContainer, [3]bool{false, true, true}},
		{"init under on failure", onFailure, "", nil, podspec.InitContainer, [3]bool{false, true, true}},
		{"init under never", never, "", nil, podspec.InitContainer, [3]bool{}},
		{"init own on failure", never, onFailure, nil, podspec.InitContainer, [3]bool{false, true, true}},
		{"init own never", always, never, nil, podspec.InitContainer, [3]bool{}},
		{"init rule", never, never, rules{rule("Restart", in, 0, 42)}, podspec.InitContainer, [3]bool{false, false, true}},
		{"sidecar under always", always, always, nil, podspec.InitContainer, [3]bool{true, true, true}},
		{"sidecar under never", never, always, nil, podspec.InitContainer, [3]bool{true, true, true}},

		{"ephemeral", always, "", nil, podspec.EphemeralContainer, [3]bool{}},
		{"ephemeral own", always, always, nil, podspec.EphemeralContainer, [3]bool{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pod := &v1.Pod{Spec: v1.PodSpec{RestartPolicy: v1.RestartPolicy(tc.pod)}}
			c := &v1.Container{RestartPolicyRules: tc.rules}
			if tc.own != "" {
				c.RestartPolicy = ptr.To(v1.ContainerRestartPolicy(tc.own))
			}
			for i, code := range []int32{0, 1, 42} {
				assert.Equal(t, tc.want[i], podspec.ShouldRestart(pod, c, tc.kind, code), "exit code %d", code)
			}
		})
	}
}

func TestGracePeriod(t *testing.T) {
	for _, tc := range []struct {
		deletion, spec *int64
		want           int64
	}{
		{nil, nil, 30},
		{nil, ptr.To[int64](5), 5},
		{nil, ptr.To[int64](0), 0},
		{ptr.To[int64](0), ptr.To[int64](5), 0},
		{ptr.To[int64](60), nil, 60},
	} {
		pod := &v1.Pod{}
		pod.DeletionGracePeriodSeconds, pod.Spec.TerminationGracePeriodSeconds = tc.deletion, tc.spec
		assert.Equal(t, tc.want, podspec.GracePeriod(pod))
	}
}

func TestQOSClass(t *testing.T) {
	// need reads "cpu memory" requests and limits; "-" leaves one out.
	need := func(reqCPU, reqMem, limCPU, limMem string) v1.ResourceRequirements {
		r := v1.ResourceRequirements{}
		put := func(list *v1.ResourceList, name v1.ResourceName, q string) {
			if q == "-" {
				return
			}
			if *list == nil {
				*list = v1.ResourceList{}
			}
			(*list)[name] = resource.MustParse(q)
		}
		put(&r.Requests, v1.ResourceCPU, reqCPU)
		put(&r.Requests, v1.ResourceMemory, reqMem)
		put(&r.Limits, v1.ResourceCPU, limCPU)
		put(&r.Limits, v1.ResourceMemory, limMem)
		return r
	}
	type all = []v1.ResourceRequirements
	var (
		none   = need("-", "-", "-", "-")
		full   = need("1", "1Gi", "1", "1Gi")
		spelt  = need("1000m", "1024Mi", "1", "1Gi")
		limits = need("-", "-", "1", "1Gi")
		zero   = need("0", "0", "0", "0")
		other  = v1.ResourceRequirements{Limits: v1.ResourceList{"example.com/gpu": resource.MustParse("1")}}
	)
	for _, tc := range []struct {
		name       string
		pod        *v1.ResourceRequirements
		init, main all
		want       v1.PodQOSClass
	}{
		{"nothing", nil, nil, all{none}, v1.PodQOSBestEffort},
		{"zeroes", nil, nil, all{zero}, v1.PodQOSBestEffort},
		{"other resources", nil, nil, all{other}, v1.PodQOSBestEffort},
		{"equal", nil, nil, all{full}, v1.PodQOSGuaranteed},
		{"equal, spelt otherwise", nil, nil, all{spelt, full}, v1.PodQOSGuaranteed},
		{"limits only", nil, nil, all{limits}, v1.PodQOSGuaranteed},
		{"requests only", nil, nil, all{need("1", "1Gi", "-", "-")}, v1.PodQOSBurstable},
		{"requests below limits", nil, nil, all{need("500m", "1Gi", "1", "1Gi")}, v1.PodQOSBurstable},
		{"zero request", nil, nil, all{need("0", "1Gi", "1", "1Gi")}, v1.PodQOSBurstable},
		{"cpu only", nil, nil, all{need("1", "-", "1", "-")}, v1.PodQOSBurstable},
		{"memory only", nil, nil, all{need("-", "1Gi", "-", "1Gi")}, v1.PodQOSBurstable},
		{"one of two", nil, nil, all{full, none}, v1.PodQOSBurstable},
		{"init container without", nil, all{none}, all{full}, v1.PodQOSBurstable},
		{"init container with", nil, all{spelt}, all{full}, v1.PodQOSGuaranteed},

		{"pod equal", &full, nil, all{none}, v1.PodQOSGuaranteed},
		{"pod equal, containers below", &full, nil, all{need("500m", "-", "-", "-")}, v1.PodQOSGuaranteed},
		{"pod's requests only", ptr.To(need("1", "-", "-", "-")), nil, all{full}, v1.PodQOSBurstable},
		{"pod's limits only", &limits, nil, all{full}, v1.PodQOSBurstable},
		{"pod has resources, none given", &none, nil, all{full}, v1.PodQOSGuaranteed},
		{"pod has other resources", &other, nil, all{full}, v1.PodQOSGuaranteed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pod := &v1.Pod{Spec: v1.PodSpec{Resources: tc.pod}}
			for _, r := range tc.init {
				pod.Spec.InitContainers = append(pod.Spec.InitContainers, v1.Container{Resources: r})
			}
			for _, r := range tc.main {
				pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Resources: r})
			}
			pod.Spec.EphemeralContainers = make([]v1.EphemeralContainer, 1) // never count
			assert.Equal(t, tc.want, podspec.QOSClass(pod))
			if tc.pod == nil && len(tc.init)+len(tc.main) == 1 {
				defaulted := tc.name != "limits only" // requests are not filled in here
				assert.Equal(t, tc.want == v1.PodQOSGuaranteed && defaulted,
					podspec.HasGuaranteedResources(&pod.Spec.Containers[0]))
			}
			pod.Status.QOSClass = v1.PodQOSBurstable
			assert.Equal(t, v1.PodQOSBurstable, podspec.QOSClass(pod), "what was once decided stays")
		})
	}
}

func TestUsedVolumes(t *testing.T) {
	mounts := func(name string) v1.Container {
		return v1.Container{VolumeMounts: []v1.VolumeMount{{Name: name, MountPath: "/v"}}}
	}
	spec := &v1.PodSpec{InitContainers: []v1.Container{mounts("init")}, Containers: []v1.Container{
		mounts("main"), mounts("not a volume"), mounts("main"),
		{VolumeDevices: []v1.VolumeDevice{{Name: "device", DevicePath: "/dev/x"}}},
		{Env: []v1.EnvVar{
			{Name: "A", Value: "unused"},
			{Name: "B", ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
			{Name: "C", ValueFrom: &v1.EnvVarSource{FileKeyRef: &v1.FileKeySelector{VolumeName: "file"}}},
		}},
	},
		EphemeralContainers: []v1.EphemeralContainer{
			{EphemeralContainerCommon: v1.EphemeralContainerCommon(mounts("ephemeral"))}}}
	for _, name := range []string{"unused", "file", "device", "ephemeral", "main", "init"} {
		spec.Volumes = append(spec.Volumes, v1.Volume{Name: name})
	}
	var got []string
	for v := range podspec.UsedVolumes(spec) {
		got = append(got, v.Name)
	}
	assert.Equal(t, []string{"file", "device", "ephemeral", "main", "init"}, got)
	for v := range podspec.UsedVolumes(spec) {
		assert.Equal(t, "file", v.Name)
		break
	}
}
