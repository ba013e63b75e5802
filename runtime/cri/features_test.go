package cri_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/cri"
)

// driven is a runtime service with a configuration of its own.
type driven struct {
	criv1.RuntimeServiceClient
	mountOptions bool
	mounts       []*criv1.Mount // of containers
	config  *criv1.RuntimeConfigResponse
	err     error
	asked   int
	parents []string
	groups  [][]int64 // of sandboxes and containers
}

func (d *driven) Status(ctx context.Context, req *criv1.StatusRequest, opts ...grpc.CallOption) (*criv1.StatusResponse, error) {
	resp, err := d.RuntimeServiceClient.Status(ctx, req, opts...)
	if err == nil {
		resp.Features.MountOptions = d.mountOptions
	}
	return resp, err
}

func (d *driven) RuntimeConfig(context.Context, *criv1.RuntimeConfigRequest,
	...grpc.CallOption) (*criv1.RuntimeConfigResponse, error) {
	d.asked++
	return d.config, d.err
}

func (d *driven) RunPodSandbox(ctx context.Context, req *criv1.RunPodSandboxRequest,
	opts ...grpc.CallOption) (*criv1.RunPodSandboxResponse, error) {
	d.parents = append(d.parents, req.GetConfig().GetLinux().GetCgroupParent())
	d.groups = append(d.groups, req.GetConfig().GetLinux().GetSecurityContext().GetSupplementalGroups())
	return d.RuntimeServiceClient.RunPodSandbox(ctx, req, opts...)
}

func (d *driven) CreateContainer(ctx context.Context, req *criv1.CreateContainerRequest,
	opts ...grpc.CallOption) (*criv1.CreateContainerResponse, error) {
	d.groups = append(d.groups, req.GetConfig().GetLinux().GetSecurityContext().GetSupplementalGroups())
	d.mounts = append(d.mounts, req.GetConfig().GetMounts()...)
	return d.RuntimeServiceClient.CreateContainer(ctx, req, opts...)
}

// The groups of volumes are those of the sandbox and of all containers, also of a container that
// does not mount them.
func TestGroupsOfVolumes(t *testing.T) {
	svc := newService(t, "app:1")
	rs, is := svc.Clients()
	service := &driven{RuntimeServiceClient: rs}
	pod := podOf("a", "b")
	pod.Spec.SecurityContext = &v1.PodSecurityContext{SupplementalGroups: []int64{30}}
	s := newSyncer(t, cri.New(service, is, cri.Options{}), pod)
	s.more = func(req *runtime.PodSync) {
		req.Volumes = map[string]runtime.Volume{"v": {HostPath: "/v", Group: new(int64(20))},
			"w": {HostPath: "/w", Group: new(int64(10))}, "x": {HostPath: "/x"}}
	}
	_, err := s.sync()
	require.NoError(t, err)
	assert.Equal(t, [][]int64{{30, 10, 20}, {30, 10, 20}, {30, 10, 20}}, service.groups)
}

// A volume that is to be noexec is mounted so, or not at all.
func TestMountOptions(t *testing.T) {
	for _, can := range []bool{false, true} {
		rs, is := newService(t, "app:1").Clients()
		service := &driven{RuntimeServiceClient: rs, mountOptions: can}
		pod := podOf("a")
		pod.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "v", MountPath: "/v",
			BindMountOptions: []string{"noexec", "nosuid"}}}
		s := newSyncer(t, cri.New(service, is, cri.Options{}), pod)
		s.more = func(req *runtime.PodSync) { req.Volumes = map[string]runtime.Volume{"v": {HostPath: "/v"}} }
		_, err := s.sync()
		assert.Equal(t, can, s.rt.Features().MountOptions)
		if !can {
			require.ErrorContains(t, err, `volumeMount "v": the runtime does not support bindMountOptions noexec,nosuid`)
			assert.Empty(t, service.mounts)
			continue
		}
		require.NoError(t, err)
		require.NotEmpty(t, service.mounts)
		assert.Equal(t, []string{"noexec", "nosuid"}, service.mounts[0].GetMountOptions())
	}
}

func linuxConfig(driver criv1.CgroupDriver) *criv1.RuntimeConfigResponse {
	return &criv1.RuntimeConfigResponse{Linux: &criv1.LinuxRuntimeConfiguration{CgroupDriver: driver}}
}

// The cases are those of kubelet's getCgroupDriverFromCRI (cmd/kubelet/app/server.go).
func TestCgroupDriver(t *testing.T) {
	for name, tc := range map[string]struct {
		config  *criv1.RuntimeConfigResponse
		err     error
		want    string
		wantErr string // of Check
	}{
		"systemd":         {config: linuxConfig(criv1.CgroupDriver_SYSTEMD), want: "systemd"},
		"cgroupfs":        {config: linuxConfig(criv1.CgroupDriver_CGROUPFS), want: "cgroupfs"},
		"not Linux":       {config: &criv1.RuntimeConfigResponse{}},
		"not implemented": {err: status.Error(codes.Unimplemented, "unknown method RuntimeConfig")},
		"unknown":         {config: linuxConfig(7), wantErr: "unknown cgroup driver 7"},
		"failure":         {err: status.Error(codes.Internal, "not yet"), wantErr: "RuntimeConfig: not yet"},
	} {
		t.Run(name, func(t *testing.T) {
			rs, is := newService(t).Clients()
			service := &driven{RuntimeServiceClient: rs, config: tc.config, err: tc.err}
			rt := cri.New(service, is, cri.Options{})
			assert.Zero(t, rt.Features(), "nothing is known")
			err := rt.Check(t.Context())
			if tc.wantErr != "" {
				require.ErrorContains(t, err, tc.wantErr)
				service.config, service.err, tc.want = linuxConfig(criv1.CgroupDriver_SYSTEMD), nil, "systemd"
				require.NoError(t, rt.Check(t.Context()), "it is asked again")
			} else {
				require.NoError(t, err)
				require.NoError(t, rt.Check(t.Context()))
				assert.Equal(t, 1, service.asked, "once")
			}
			got := rt.Features()
			assert.Equal(t, []string{"fake", "1.0.0"}, []string{got.Name, got.Version})
			assert.Equal(t, tc.want, got.CgroupDriver)
			assert.True(t, got.SupplementalGroupsPolicy)
			assert.Equal(t, []runtime.Handler{{Name: "", RecursiveReadOnlyMounts: true, UserNamespaces: true}},
				got.Handlers)
		})
	}
}

// A sandbox gets the parent of the option. A running one with another parent, of an agent
// without the option, stays.
func TestCgroupParent(t *testing.T) {
	svc := newService(t)
	rs, is := svc.Clients()
	service := &driven{RuntimeServiceClient: rs}
	s := newSyncer(t, cri.New(service, is, cri.Options{}), podOf("app"))
	s.mustSync()
	require.Equal(t, []string{""}, service.parents)
	s.rt = cri.New(service, is,
		cri.Options{CgroupParent: func(pod *v1.Pod) string { return "/kubepods/pod" + string(pod.UID) }})
	assert.False(t, s.mustSync().Changed)
	require.Len(t, service.parents, 1, "it runs on")
	s.mustKill()
	s.mustSync()
	assert.Equal(t, []string{"", "/kubepods/poduid-1"}, service.parents)
}

// The addresses of pods go to the runtime; one without the call needs none.
func TestSetPodCIDR(t *testing.T) {
	rs, is := newService(t).Clients()
	service := &networked{RuntimeServiceClient: rs}
	rt := cri.New(service, is, cri.Options{})
	require.NoError(t, rt.SetPodCIDR(t.Context(), "10.1.0.0/24"))
	assert.Equal(t, []string{"10.1.0.0/24"}, service.cidrs)
	service.err = status.Error(codes.Unimplemented, "unknown method")
	require.NoError(t, rt.SetPodCIDR(t.Context(), "10.2.0.0/24"))
	service.err = status.Error(codes.Internal, "broken")
	require.ErrorContains(t, rt.SetPodCIDR(t.Context(), "10.2.0.0/24"), "broken")
}

// networked is a runtime that takes the addresses of pods.
type networked struct {
	criv1.RuntimeServiceClient
	cidrs []string
	err   error
}

func (n *networked) UpdateRuntimeConfig(_ context.Context, req *criv1.UpdateRuntimeConfigRequest,
	_ ...grpc.CallOption) (*criv1.UpdateRuntimeConfigResponse, error) {
	n.cidrs = append(n.cidrs, req.GetRuntimeConfig().GetNetworkConfig().GetPodCidr())
	return &criv1.UpdateRuntimeConfigResponse{}, n.err
}
