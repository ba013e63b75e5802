package ui

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kubeletkit/kubeletkit/history"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/podtest"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// full is a container that has everything that the page shows.
var full = v1.Container{
	Name: "a",
	Resources: v1.ResourceRequirements{
		Requests: v1.ResourceList{"cpu": resource.MustParse("100m"), "memory": resource.MustParse("64Mi")},
		Limits:   v1.ResourceList{"memory": resource.MustParse("128Mi")},
	},
	LivenessProbe: &v1.Probe{PeriodSeconds: 10, ProbeHandler: v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{
		Port: intstr.FromInt32(80)}}},
	ReadinessProbe: &v1.Probe{PeriodSeconds: 5, ProbeHandler: v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{
		Port: intstr.FromString("http"), Path: "/ready", Scheme: v1.URISchemeHTTPS}}},
	Ports:        []v1.ContainerPort{{Name: "http", ContainerPort: 80, HostPort: 8080, Protocol: v1.ProtocolTCP}},
	VolumeMounts: []v1.VolumeMount{{Name: "data", MountPath: "/data", SubPath: "web", ReadOnly: true}},
	EnvFrom:      []v1.EnvFromSource{{Prefix: "DB_", SecretRef: &v1.SecretEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: "db"}}}},
	Env: []v1.EnvVar{
		{Name: "MODE", Value: "fast"}, {Name: "DB_PASSWORD", Value: "geheim"}, {Name: "API_KEY", Value: "geheim"},
		{Name: "DSN", Value: "postgres://shop:geheim@db/shop"},
		{Name: "USER", ValueFrom: &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{Key: "user",
			LocalObjectReference: v1.LocalObjectReference{Name: "db"}}}},
	},
}

func TestGroups(t *testing.T) {
	probe := func(reason, err string, after time.Duration) history.Entry {
		return history.Entry{Record: runtime.Record{Kind: runtime.KindProbe, Container: "a", Reason: reason, Error: err},
			Last: podtest.Noon.Add(after)}
	}
	past := []history.Entry{probe("Readiness", "", 0), probe("Readiness", "503", time.Second), probe("Liveness", "", 0)}
	assert.Equal(t, []group{
		{"Resources", []fact{{Name: "cpu", Value: "requested 100m"}, {Name: "memory", Value: "requested 64Mi, limit 128Mi"}}},
		{"Probes", []fact{
			{Name: "Liveness", Value: "connects to port 80, every 10 s", Answer: "succeeds", Tone: good, At: &past[2].Last},
			{Name: "Readiness", Value: "GET :http/ready by HTTPS, every 5 s", Answer: "fails: 503", Tone: bad,
				At: &past[1].Last},
		}},
		{"Ports", []fact{{Name: "http", Value: "80/TCP, port 8080 of the node"}}},
		{"Mounts", []fact{{Name: "/data", Value: "from volume data, web, read-only"}}},
		{"Environment", []fact{{Name: "DB_*", Value: "all keys of Secret db"}, {Name: "MODE", Value: "fast"},
			{Name: "DB_PASSWORD", Value: hidden}, {Name: "API_KEY", Value: hidden}, {Name: "DSN", Value: hidden},
			{Name: "USER", Value: "from key user of Secret db"}}},
	}, groupsOf(&full, past))
	assert.Empty(t, groupsOf(&v1.Container{Name: "a"}, past))
}

// No value that may be secret reaches the browser, and the pod stays as it is.
func TestSecretsAreHidden(t *testing.T) {
	pod := podtest.Pod(v1.PodRunning)
	pod.Spec.InitContainers[0].Env, pod.Spec.Containers[0] = full.Env, *full.DeepCopy()
	pod.Annotations = map[string]string{v1.LastAppliedConfigAnnotation: `{"value":"geheim"}`, "kept": "yes"}
	text, err := yamlOf(pod)
	require.NoError(t, err)
	assert.NotContains(t, string(text), "geheim")
	assert.Contains(t, string(text), "value: fast")
	assert.Contains(t, string(text), "kept: \"yes\"")
	assert.Contains(t, string(text), "kind: Pod")
	assert.Equal(t, "geheim", pod.Spec.Containers[0].Env[1].Value)
	data, err := json.Marshal(detailsOf(pod, nil, nil, nil, podtest.Noon))
	require.NoError(t, err)
	assert.NotContains(t, string(data), "geheim")
}

func TestEventsOfPods(t *testing.T) {
	events := eventsOf([]runtime.Event{
		{Type: v1.EventTypeNormal, Reason: "Pulled", FieldPath: "spec.containers{a}", Count: 1, Last: podtest.Noon},
		{Type: v1.EventTypeWarning, Reason: "Unhealthy", Message: "503", Count: 3},
	})
	assert.Equal(t, []eventView{{Tone: bad, Reason: "Unhealthy", Message: "503", Count: 3},
		{Tone: normal, Reason: "Pulled", Container: "a", Count: 1, Last: podtest.Noon}}, events)
}
