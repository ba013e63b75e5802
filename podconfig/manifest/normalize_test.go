package manifest_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/podconfig/manifest"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

func TestNormalize(t *testing.T) {
	t.Parallel()
	now := metav1.Now()
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", DeletionTimestamp: &now,
			DeletionGracePeriodSeconds: ptr.To[int64](65)},
		Status: v1.PodStatus{Phase: v1.PodRunning, PodIP: "1.2.3.4"},
	}
	require.NoError(t, manifest.Normalize(pod, manifest.Options{NodeName: "Edge-7", Origin: "/m/web.yaml"}))
	assert.Equal(t, "web-edge-7", pod.Name)
	assert.Equal(t, "default", pod.Namespace)
	assert.Equal(t, "Edge-7", pod.Spec.NodeName)
	assert.Len(t, pod.UID, 32)
	assert.Equal(t, map[string]string{
		podspec.AnnotationConfigSource: "file",
		podspec.AnnotationConfigHash:   string(pod.UID),
	}, pod.Annotations)
	assert.Equal(t, []v1.Toleration{{Operator: "Exists", Effect: "NoExecute"}}, pod.Spec.Tolerations)
	assert.Equal(t, v1.PodStatus{Phase: v1.PodPending}, pod.Status)
	assert.Equal(t, &now, pod.DeletionTimestamp, "as kubelet")
	assert.Equal(t, ptr.To[int64](65), pod.DeletionGracePeriodSeconds, "the grace period, as kubelet")
	assert.True(t, podspec.IsStatic(pod))
}

func TestNormalizeKeepsWhatIsGiven(t *testing.T) {
	t.Parallel()
	tolerations := []v1.Toleration{{Operator: "Exists", Effect: "NoSchedule"}}
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", UID: "u"},
		Spec:       v1.PodSpec{Tolerations: tolerations},
	}
	require.NoError(t, manifest.Normalize(pod, manifest.Options{NodeName: "n", Source: manifest.SourceHTTP,
		Origin: "http://x"}))
	assert.Equal(t, "shop", pod.Namespace)
	assert.EqualValues(t, "u", pod.UID)
	assert.Equal(t, "u", pod.Annotations[podspec.AnnotationConfigHash])
	assert.Equal(t, "http", pod.Annotations[podspec.AnnotationConfigSource])
	assert.Equal(t, tolerations, pod.Spec.Tolerations)
}

func TestNormalizeErrors(t *testing.T) {
	t.Parallel()
	require.ErrorContains(t, manifest.Normalize(&v1.Pod{}, manifest.Options{NodeName: "n"}),
		"metadata.name: Required value")
	require.ErrorContains(t, manifest.Normalize(&v1.Pod{}, manifest.Options{}), "no node name")
	_, err := manifest.Load([]byte("apiVersion: v1\nkind: PodList\nitems: [{}]"), loadOptions())
	require.ErrorContains(t, err, "items[0].metadata.name: Required value")
}

// TestDefaults has the spec of a pod before and after defaulting by the API server.
func TestDefaults(t *testing.T) {
	t.Parallel()
	const in = `
hostNetwork: true
overhead: {cpu: 1u}
initContainers:
- {name: i, image: "reg:5000/a", resources: {limits: {cpu: 1}}}
containers:
- name: m
  image: a:1
  ports: [{containerPort: 80}]
  env:
  - {name: X, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
  resources: {limits: {cpu: "2", memory: 1Gi}, requests: {cpu: 100u}}
  livenessProbe: {httpGet: {port: 80}}
  readinessProbe: {grpc: {port: 81}, periodSeconds: 3}
  lifecycle: {preStop: {httpGet: {port: 80}}}
- {name: d, image: "a@sha256:0000000000000000000000000000000000000000000000000000000000000000"}
- {name: l, image: "a:latest", imagePullPolicy: Never}
- {name: bad, image: "A B"}
volumes:
- name: e
- {name: h, hostPath: {path: /x}}
- {name: p, projected: {sources: [{downwardAPI: {items: [{path: f, fieldRef: {fieldPath: metadata.name}}]}}]}}
- {name: i, image: {reference: a}}
`
	const want = `
hostNetwork: true
overhead: {cpu: 1m}
restartPolicy: Always
dnsPolicy: ClusterFirst
schedulerName: default-scheduler
securityContext: {}
terminationGracePeriodSeconds: 30
enableServiceLinks: true
initContainers:
- {name: i, image: "reg:5000/a", imagePullPolicy: Always, resources: {limits: {cpu: 1}, requests: {cpu: 1}},
   terminationMessagePath: /dev/termination-log, terminationMessagePolicy: File}
containers:
- name: m
  image: a:1
  imagePullPolicy: IfNotPresent
  terminationMessagePath: /dev/termination-log
  terminationMessagePolicy: File
  ports: [{containerPort: 80, hostPort: 80, protocol: TCP}]
  env:
  - {name: X, valueFrom: {fieldRef: {apiVersion: v1, fieldPath: metadata.name}}}
  resources: {limits: {cpu: "2", memory: 1Gi}, requests: {cpu: 1m, memory: 1Gi}}
  livenessProbe: {httpGet: {port: 80, path: /, scheme: HTTP}, timeoutSeconds: 1, periodSeconds: 10, successThreshold: 1, failureThreshold: 3}
  readinessProbe: {grpc: {port: 81, service: ""}, timeoutSeconds: 1, periodSeconds: 3, successThreshold: 1, failureThreshold: 3}
  lifecycle: {preStop: {httpGet: {port: 80, path: /, scheme: HTTP}}}
- {name: d, image: "a@sha256:0000000000000000000000000000000000000000000000000000000000000000", imagePullPolicy: IfNotPresent,
   terminationMessagePath: /dev/termination-log, terminationMessagePolicy: File}
- {name: l, image: "a:latest", imagePullPolicy: Never,
   terminationMessagePath: /dev/termination-log, terminationMessagePolicy: File}
- {name: bad, image: "A B", imagePullPolicy: IfNotPresent,
   terminationMessagePath: /dev/termination-log, terminationMessagePolicy: File}
volumes:
- {name: e, emptyDir: {}}
- {name: h, hostPath: {path: /x, type: ""}}
- {name: p, projected: {defaultMode: 420, sources: [{downwardAPI: {items: [{path: f, fieldRef: {apiVersion: v1, fieldPath: metadata.name}}]}}]}}
- {name: i, image: {reference: a, pullPolicy: Always}}
`
	assert.Equal(t, specJSON(t, want, false), specJSON(t, in, true))
}

// TestNegativeGracePeriod: the API server replaces a negative grace period by 1 s.
func TestNegativeGracePeriod(t *testing.T) {
	t.Parallel()
	grace := int64(-1)
	pod := &v1.Pod{Spec: v1.PodSpec{TerminationGracePeriodSeconds: &grace}}
	manifest.SetDefaults(pod)
	assert.EqualValues(t, 1, *pod.Spec.TerminationGracePeriodSeconds)
	assert.EqualValues(t, -1, grace, "the caller may share it")
}

// TestPodResourceDefaults has the rules of KEP-2837 in Kubernetes 1.37.
func TestPodResourceDefaults(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ pod, container, want string }{
		"requests are the containers'":  {`{limits: {cpu: 2}}`, `{requests: {cpu: 500m}}`, `{limits: {cpu: 2}, requests: {cpu: 500m}}`},
		"or else the limits":            {`{limits: {cpu: 2}}`, `{}`, `{limits: {cpu: 2}, requests: {cpu: 2}}`},
		"given ones stay":               {`{limits: {cpu: 2}, requests: {cpu: 1}}`, `{requests: {cpu: 500m}}`, `{limits: {cpu: 2}, requests: {cpu: 1}}`},
		"huge pages follow the limits":  {`{limits: {cpu: 2}}`, `{limits: {cpu: 1, hugepages-2Mi: 4Mi}}`, `{limits: {cpu: 2, hugepages-2Mi: 4Mi}, requests: {cpu: 1, hugepages-2Mi: 4Mi}}`},
		"without limits, no limits":     {`{requests: {cpu: 2}}`, `{requests: {cpu: 1, memory: 2}}`, `{requests: {cpu: 2, memory: 2}}`},
		"limits are the containers'":    {`{requests: {cpu: 1}}`, `{limits: {cpu: 2}}`, `{requests: {cpu: 1}, limits: {cpu: 2}}`},
		"limits are not below requests": {`{requests: {cpu: 2}}`, `{limits: {cpu: 1}}`, `{requests: {cpu: 2}, limits: {cpu: 2}}`},
		"empty ones stay":               {`{}`, `{limits: {cpu: 1}}`, `{}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var want v1.ResourceRequirements
			require.NoError(t, yaml.Unmarshal([]byte(tc.want), &want))
			pod := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{}}, Resources: &v1.ResourceRequirements{}}}
			require.NoError(t, yaml.Unmarshal([]byte(tc.pod), pod.Spec.Resources))
			require.NoError(t, yaml.Unmarshal([]byte(tc.container), &pod.Spec.Containers[0].Resources))
			manifest.SetDefaults(pod)
			a, _ := yaml.Marshal(want)
			b, _ := yaml.Marshal(pod.Spec.Resources)
			assert.Equal(t, string(a), string(b))
		})
	}
}

func specJSON(t *testing.T, in string, defaults bool) string {
	t.Helper()
	pod := &v1.Pod{}
	require.NoError(t, yaml.UnmarshalStrict([]byte(in), &pod.Spec))
	if defaults {
		manifest.SetDefaults(pod)
	}
	out, err := yaml.Marshal(pod.Spec)
	require.NoError(t, err)
	return string(out)
}
