package syncloop_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/testenv"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/syncloop"
)

// The loop, which all pods wait for, does not compare each of 100,000 host ports with each.
func TestManyHostPorts(t *testing.T) {
	const ports = 100_000
	pod := func(name, ip string) *v1.Pod {
		p := makePod(name)
		for i := range ports {
			p.Spec.Containers[0].Ports = append(p.Spec.Containers[0].Ports, v1.ContainerPort{
				HostIP: fmt.Sprintf("%s.%d", ip, i/60_000), HostPort: int32(1 + i%60_000), Protocol: v1.ProtocolTCP,
			})
		}
		return p
	}
	req := lifecycle.AdmitRequest{Pod: pod("a", "10.0.0"), Active: []*v1.Pod{pod("b", "10.0.1"), pod("c", "10.0.2")}}
	var err error
	took := testenv.CPUTime(t, func() { _, err = syncloop.Limits{}.Admit(req) })
	require.NoError(t, err)
	assert.Less(t, took, 10*time.Second, "a quadratic cost takes minutes")
	last := &req.Active[1].Spec.Containers[0].Ports[ports-1]
	last.HostIP = ""
	_, err = syncloop.Limits{}.Admit(req)
	require.ErrorContains(t, err, fmt.Sprintf("host port %d/TCP is used by pod", last.HostPort))
}

// Each of the secrets and config maps of a pod costs a watch.
func TestPodWithTooManyReferences(t *testing.T) {
	for n, admitted := range map[int]bool{1000: true, 1001: false} {
		b := newHandler(t, syncloop.HandlerOptions{})
		pod := makePod("web")
		for i := range n {
			name := v1.LocalObjectReference{Name: fmt.Sprint("s", i)}
			if i%2 == 0 {
				pod.Spec.ImagePullSecrets = append(pod.Spec.ImagePullSecrets, name)
			} else {
				pod.Spec.Containers[0].EnvFrom = append(pod.Spec.Containers[0].EnvFrom,
					v1.EnvFromSource{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: name}})
			}
		}
		b.HandlePodAdditions([]*v1.Pod{pod})
		if admitted {
			assert.NotEmpty(t, b.workers.take())
			continue
		}
		assert.Empty(t, b.workers.take())
		assert.Equal(t, "Pod was rejected: spec: Too many: 1001: must refer to at most 1000 secrets and config maps",
			b.status.m[pod.UID].Message)
	}

	// A pod to which users have added ephemeral containers is not refused for these by the next agent.
	b := newHandler(t, syncloop.HandlerOptions{})
	pod := makePod("web")
	debug := v1.EphemeralContainer{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug"}}
	for i := range 1001 {
		debug.EnvFrom = append(debug.EnvFrom,
			v1.EnvFromSource{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: v1.LocalObjectReference{
				Name: fmt.Sprint(i)}}})
	}
	pod.Spec.EphemeralContainers = append(pod.Spec.EphemeralContainers, debug)
	b.HandlePodAdditions([]*v1.Pod{pod})
	assert.NotEmpty(t, b.workers.take())
}
