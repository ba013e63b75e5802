package checkpoint_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/podconfig/checkpoint"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// hostile are values of names and texts that a pod should not have.
var hostile = []string{"", "..", "../../x", "a/b", "/etc", "A_b", "\xff", "x\x00y", "x\ny", strings.Repeat("x", 300),
	"a:b@c"}

// drawText returns one of the values, and now and then a hostile one.
func drawText(t *rapid.T, label string, values ...string) string {
	if rapid.IntRange(0, 99).Draw(t, label+" is hostile") == 57 {
		return rapid.SampledFrom(hostile).Draw(t, label)
	}
	return rapid.SampledFrom(values).Draw(t, label)
}

func drawPtr[T any](t *rapid.T, label string, values ...T) *T {
	if rapid.Bool().Draw(t, "no "+label) {
		return nil
	}
	v := rapid.SampledFrom(values).Draw(t, label)
	return &v
}

func drawQuantities(t *rapid.T) v1.ResourceList {
	list := v1.ResourceList{}
	for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom([]v1.ResourceName{"cpu", "memory",
		"ephemeral-storage"}), 0, 2, rapid.ID).Draw(t, "resources") {
		switch rapid.IntRange(0, 3).Draw(t, "kind of quantity") {
		case 0:
			list[name] = resource.MustParse(rapid.SampledFrom([]string{"1", "2Mi", "100m", "0.1", "1e3", "1500u",
				"12345678901234567890", "0"}).Draw(t, "quantity"))
		case 1:
			list[name] = *resource.NewQuantity(rapid.Int64Range(0, 1<<40).Draw(t, "quantity"), resource.BinarySI)
		case 2:
			list[name] = *resource.NewMilliQuantity(rapid.Int64Range(0, 1<<40).Draw(t, "quantity"), resource.DecimalSI)
		case 3:
			list[name] = *resource.NewScaledQuantity(rapid.Int64Range(0, 1<<20).Draw(t, "quantity"), resource.Micro)
		}
	}
	return list
}

func drawProbe(t *rapid.T) *v1.Probe {
	if rapid.Bool().Draw(t, "no probe") {
		return nil
	}
	p := &v1.Probe{PeriodSeconds: rapid.Int32Range(0, 20).Draw(t, "period")}
	switch rapid.IntRange(0, 2).Draw(t, "kind of probe") {
	case 0:
		p.Exec = &v1.ExecAction{Command: []string{drawText(t, "command", "true", "a b")}}
	case 1:
		p.HTTPGet = &v1.HTTPGetAction{Path: drawText(t, "path", "", "/health"),
			Port: intstr.FromString(drawText(t, "port", "http"))}
	case 2:
		p.GRPC = &v1.GRPCAction{Port: rapid.Int32Range(1, 65535).Draw(t, "port")}
	}
	return p
}

func drawVolume(t *rapid.T, name string) v1.Volume {
	v := v1.Volume{Name: drawText(t, "volume", name)}
	items := []v1.KeyToPath{{Key: "k", Path: drawText(t, "item", "a", "a/b"),
		Mode: drawPtr[int32](t, "mode", 0o400, 0o777)}}
	switch rapid.IntRange(0, 6).Draw(t, "kind of volume") {
	case 0: // none, which is the default or unknown
	case 1:
		limit := resource.MustParse("1500u")
		v.EmptyDir = &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory, SizeLimit: &limit}
	case 2:
		v.HostPath = &v1.HostPathVolumeSource{Path: drawText(t, "host path", "/a")}
	case 3:
		v.Secret = &v1.SecretVolumeSource{SecretName: "s", Items: items}
	case 4:
		v.ConfigMap = &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: "c"}, Items: items}
	case 5:
		v.Projected = &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
			{DownwardAPI: &v1.DownwardAPIProjection{Items: []v1.DownwardAPIVolumeFile{{Path: drawText(t, "file", "f"), FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.name"}}}}},
			{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: drawText(t, "token", "t")}},
		}}
	case 6:
		v.CSI = &v1.CSIVolumeSource{Driver: "csi.example.com",
			VolumeAttributes: map[string]string{"a": drawText(t, "attribute", "b")}}
	}
	return v
}

func drawContainer(t *rapid.T, name string, volumes []string) v1.Container {
	c := v1.Container{
		Name: drawText(t, "container", name), Image: drawText(t, "image", "busybox", "a/b:c"),
		ImagePullPolicy:        v1.PullPolicy(drawText(t, "pull", "", "Always")),
		Args:                   []string{drawText(t, "argument", "a", "$(B)", "<>&\u2028\ufffd")},
		TerminationMessagePath: drawText(t, "message", "", "/x"),
		Env: []v1.EnvVar{{Name: drawText(t, "variable", "A", "a.b"),
			Value: drawText(t, "value", "v", "é")}},
		Resources:     v1.ResourceRequirements{Requests: drawQuantities(t)},
		LivenessProbe: drawProbe(t),
	}
	if rapid.Bool().Draw(t, "limits") {
		c.Resources = v1.ResourceRequirements{Limits: drawQuantities(t)}
	}
	if len(volumes) > 0 {
		c.VolumeMounts = []v1.VolumeMount{{Name: drawText(t, "mount", volumes...), MountPath: drawText(t, "mount path",
			"/v"), SubPath: drawText(t, "subPath", "", "a/b")}}
	}
	if rapid.Bool().Draw(t, "ports") {
		c.Ports = []v1.ContainerPort{{ContainerPort: rapid.Int32Range(1, 65535).Draw(t, "port"),
			Name: drawText(t, "port", "", "http")}}
	}
	return c
}

func drawAnyPod(t *rapid.T, source string) *v1.Pod {
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: drawText(t, "name", "web", "db-0"), Namespace: drawText(t, "namespace", "default", "kube-system"),
			UID: types.UID(drawText(t, "uid", "8a1d", "uid of", ".new")),
			Annotations: map[string]string{podspec.AnnotationConfigSource: source,
				"note": drawText(t, "annotation", "", "a\nb")},
			Labels: map[string]string{"app": drawText(t, "label", "web")},
		},
		Spec: v1.PodSpec{
			RestartPolicy: v1.RestartPolicy(drawText(t, "restart policy", "", "Never", "OnFailure")),
			NodeName:      drawText(t, "node", "", "edge-7"), HostNetwork: rapid.Bool().Draw(t, "host network"),
			TerminationGracePeriodSeconds: drawPtr[int64](t, "grace", -1, 0, 600),
			ActiveDeadlineSeconds:         drawPtr[int64](t, "deadline", 1, 600),
			Hostname:                      drawText(t, "hostname", "", "web"),
			ServiceAccountName:            drawText(t, "account", "sa"),
			Overhead:                      drawQuantities(t),
		},
		Status: v1.PodStatus{Phase: v1.PodPending, Message: drawText(t, "status", "", "é")},
	}
	if rapid.Bool().Draw(t, "deleted") {
		now := metav1.Time{Time: time.Unix(1e9, rapid.Int64Range(0, 999_999_999).Draw(t, "nanoseconds"))}
		pod.DeletionTimestamp, pod.CreationTimestamp = &now, now
	}
	volumes := []string{"v", "data"}[:rapid.IntRange(0, 2).Draw(t, "volumes")]
	for _, name := range volumes {
		pod.Spec.Volumes = append(pod.Spec.Volumes, drawVolume(t, name))
	}
	pod.Spec.Containers = append(pod.Spec.Containers, drawContainer(t, "main", volumes))
	if rapid.Bool().Draw(t, "init") {
		init := drawContainer(t, "init", volumes)
		init.LivenessProbe = nil
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, init)
	}
	if rapid.Bool().Draw(t, "ephemeral") {
		e := v1.EphemeralContainer{EphemeralContainerCommon: v1.EphemeralContainerCommon(drawContainer(t,
			"debug", volumes))}
		e.Resources, e.Ports, e.LivenessProbe = v1.ResourceRequirements{}, nil, nil
		pod.Spec.EphemeralContainers = append(pod.Spec.EphemeralContainers, e)
	}
	return pod
}

// entered returns the pod as a mux with the source puts it into its stream, nil if it does not.
func entered(t require.TestingT, source string, pod *v1.Pod) *v1.Pod {
	quiet := funcr.New(func(string, string) {}, funcr.Options{})
	mux, err := podconfig.New(podconfig.Options{NodeName: "edge-7",
		Sources: []podconfig.Source{podconfig.NewStatic(source, pod)}, Observer: runtime.Observer{Logger: quiet}})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- mux.Run(ctx) }()
	change := <-mux.Changes()
	cancel()
	require.NoError(t, <-done)
	rejected := mux.Sources()[0].Rejected
	if len(change.Pods) == 0 {
		require.Len(t, rejected, 1)
		return nil
	}
	require.Empty(t, rejected)
	return change.Pods[0]
}

// TestEveryPodThatEntersComesBack draws pods of all sources. A pod that is in the stream of a mux is the same after it
// was kept and loaded, and enters again.
func TestEveryPodThatEntersComesBack(t *testing.T) {
	accepted, refused := map[string]int{}, map[string]int{}
	var known logs
	rapid.Check(t, func(rt *rapid.T) {
		source := rapid.SampledFrom([]string{podspec.SourceAPI, "file", "broker"}).Draw(rt, "source")
		given := drawAnyPod(rt, source)
		if source == podspec.SourceAPI { // which sends JSON
			data, err := json.Marshal(given)
			require.NoError(rt, err)
			given = &v1.Pod{}
			require.NoError(rt, json.Unmarshal(data, given))
		}
		before := given.DeepCopy()
		pod := entered(rt, source, given)
		require.True(rt, equality.Semantic.DeepEqual(before, given), "the pod of the source is not changed")
		if pod == nil {
			refused[source]++
			return
		}
		accepted[source]++
		dir := t.TempDir()
		life(t, dir, checkpoint.Options{Logger: known.logger()}, func(s *checkpoint.Dir, _ []*v1.Pod) { s.Keep(pod) })
		var restored []*v1.Pod
		life(t, dir, checkpoint.Options{Logger: known.logger()},
			func(_ *checkpoint.Dir, pods []*v1.Pod) { restored = pods })
		require.Len(rt, restored, 1, "%s", known.take())
		require.True(rt, equality.Semantic.DeepEqual(pod, restored[0]), "%s", describe(pod, restored[0]))
		again := entered(rt, source, restored[0])
		require.NotNil(rt, again)
		again.Annotations[podspec.AnnotationConfigSeen] = pod.Annotations[podspec.AnnotationConfigSeen]
		require.True(rt, equality.Semantic.DeepEqual(pod, again), "%s", describe(pod, again))
	})
	t.Log("accepted:", accepted, "refused:", refused)
	require.Len(t, accepted, 3)
}

func describe(a, b *v1.Pod) string { return fmt.Sprintf("%+v\n%+v", a, b) }
