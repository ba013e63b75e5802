package server

import (
	"testing"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"
)

func TestMayRestart(t *testing.T) {
	always, never := v1.ContainerRestartPolicyAlways, v1.ContainerRestartPolicyNever
	for _, tt := range []struct {
		pod       v1.RestartPolicy
		own       *v1.ContainerRestartPolicy
		init      bool
		code0, co bool // after exit code 0, after another
	}{
		{v1.RestartPolicyAlways, nil, false, true, true},
		{v1.RestartPolicyOnFailure, nil, false, false, true},
		{v1.RestartPolicyNever, nil, false, false, false},
		{v1.RestartPolicyNever, &always, false, true, true},
		{v1.RestartPolicyAlways, &never, false, false, false},
		{v1.RestartPolicyAlways, nil, true, false, true},
		{v1.RestartPolicyNever, nil, true, false, false},
		{v1.RestartPolicyNever, &always, true, true, true},
	} {
		pod := &v1.Pod{Spec: v1.PodSpec{RestartPolicy: tt.pod}}
		c := v1.Container{Name: "c", RestartPolicy: tt.own}
		if tt.init {
			pod.Spec.InitContainers = []v1.Container{c}
		} else {
			pod.Spec.Containers = []v1.Container{c}
		}
		assert.Equal(t, tt.code0, mayRestart(pod, "c", 0), "%+v", tt)
		assert.Equal(t, tt.co, mayRestart(pod, "c", 1), "%+v", tt)
	}
}
