package cri_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/cri"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

func TestCheck(t *testing.T) {
	ready := &criv1.RuntimeCondition{Type: criv1.RuntimeReady, Status: true}
	tests := []struct {
		name  string
		conds []*criv1.RuntimeCondition
		fail  error
		want  string
		is    error
	}{
		{name: "fit", conds: []*criv1.RuntimeCondition{ready, {Type: criv1.NetworkReady, Status: true}, {Type: "ContainerdHasNoDeprecationWarnings"}}},
		{
			name: "no network",
			conds: []*criv1.RuntimeCondition{ready, {Type: criv1.NetworkReady, Reason: "NetworkPluginNotReady",
				Message: "cni plugin not initialized"}},
			want: "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady " +
				"message:cni plugin not initialized",
			is: runtime.ErrNetworkNotReady,
		},
		{name: "a condition is missing", conds: []*criv1.RuntimeCondition{ready}, want: "container runtime network not ready: container runtime at the given client does not report whether NetworkReady", is: runtime.ErrNetworkNotReady},
		{name: "nothing works", conds: []*criv1.RuntimeCondition{{Type: criv1.RuntimeReady, Reason: "R", Message: "r"}, {Type: criv1.NetworkReady, Reason: "N", Message: "n"}}, want: "container runtime not ready: RuntimeReady=false reason:R message:r\nNetworkReady=false reason:N message:n"},
		{name: "not CRI", fail: status.Error(codes.Unimplemented, "unknown service runtime.v1.RuntimeService"), want: "container runtime at the given client: Status: unknown service runtime.v1.RuntimeService"},
		{name: "not there", fail: status.Error(codes.Unavailable, "no such file"), is: runtime.ErrUnavailable,
			want: "container runtime at the given client does not answer; is it running, is this its CRI socket, " +
				"and may this user open it? Status: no such file: container runtime unavailable"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			svc := newService(t)
			svc.RemoveCondition(criv1.RuntimeReady)
			svc.RemoveCondition(criv1.NetworkReady)
			for _, c := range tt.conds {
				svc.SetCondition(c.Type, c.Status, c.Reason, c.Message)
			}
			svc.Inject(fake.Fault{Err: tt.fail})
			err := svc.client(cri.Options{}).Check(t.Context())
			if tt.want == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, tt.want)
			if tt.is != nil {
				assert.ErrorIs(t, err, tt.is)
			} else {
				assert.NotErrorIs(t, err, runtime.ErrUnavailable)
			}
		})
	}
}

func TestCheckOfAHungRuntime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := newService(t)
		svc.Inject(fake.Fault{Hang: true})
		began := time.Now()
		err := svc.client(cri.Options{CallTimeout: 5 * time.Second}).Check(t.Context())
		assert.ErrorIs(t, err, runtime.ErrUnavailable)
		assert.ErrorContains(t, err, "did not answer within 5s")
		assert.Equal(t, 5*time.Second, time.Since(began))

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err = svc.client(cri.Options{}).Check(ctx)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.NotErrorIs(t, err, runtime.ErrUnavailable, "it is the caller who gave up")
	})
}
