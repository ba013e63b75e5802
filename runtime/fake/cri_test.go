package fake_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

func TestImages(t *testing.T) {
	rt := fake.New(fake.Options{Images: []string{"registry.example:5000/there"}})
	rt.AddImage(fake.Image{Name: "user:1", UID: new(int64(7)), Size: 5})
	images := imagesOf(rt)
	status := func(name string) *criv1.Image {
		resp, err := images.ImageStatus(t.Context(), &criv1.ImageStatusRequest{Image: &criv1.ImageSpec{Image: name}})
		require.NoError(t, err)
		return resp.Image
	}
	there := status("registry.example:5000/there:latest")
	require.NotNil(t, there)
	assert.Equal(t, []string{"registry.example:5000/there@" + there.Id}, there.RepoDigests)
	assert.Equal(t, there.Id, status(there.Id).Id)
	assert.Equal(t, int64(7), status("user:1").Uid.Value)
	assert.Nil(t, status("other"))
	pulled, err := images.PullImage(t.Context(), &criv1.PullImageRequest{Image: &criv1.ImageSpec{Image: "other"}})
	require.NoError(t, err)
	assert.Equal(t, status("other:latest").Id, pulled.ImageRef)
	usage, err := images.ImageFsInfo(t.Context(), &criv1.ImageFsInfoRequest{})
	require.NoError(t, err)
	assert.Equal(t, uint64(2<<20+5), usage.ImageFilesystems[0].UsedBytes.Value)
	for range 2 {
		_, err = images.RemoveImage(t.Context(), &criv1.RemoveImageRequest{Image: &criv1.ImageSpec{Image: "other"}})
		require.NoError(t, err)
	}
	list, err := images.ListImages(t.Context(), &criv1.ListImagesRequest{})
	require.NoError(t, err)
	assert.Len(t, list.Images, 2)
}

// TestTheContractOfCRI makes calls that runtime/cri does not make, and for which CRI has an answer.
func TestTheContractOfCRI(t *testing.T) {
	rt := fake.New(fake.Options{Images: []string{"image:1"}})
	c, _ := rt.Clients()
	ctx := t.Context()
	config := &criv1.PodSandboxConfig{Metadata: &criv1.PodSandboxMetadata{Name: "p", Namespace: "n", Uid: "u"}}
	sb, err := c.RunPodSandbox(ctx, &criv1.RunPodSandboxRequest{Config: config})
	require.NoError(t, err)
	_, err = c.RunPodSandbox(ctx, &criv1.RunPodSandboxRequest{Config: config})
	require.ErrorContains(t, err, "is taken")
	_, err = c.RunPodSandbox(ctx, &criv1.RunPodSandboxRequest{})
	require.ErrorContains(t, err, "InvalidArgument")

	create := &criv1.CreateContainerRequest{PodSandboxId: sb.PodSandboxId, SandboxConfig: config,
		Config: &criv1.ContainerConfig{
			Metadata: &criv1.ContainerMetadata{Name: "c"}, Image: &criv1.ImageSpec{Image: "nothing:1"},
		}}
	_, err = c.CreateContainer(ctx, create)
	require.ErrorContains(t, err, `image "nothing:1": not found`)
	create.Config.Image.Image = "image:1"
	made, err := c.CreateContainer(ctx, create)
	require.NoError(t, err)
	_, err = c.CreateContainer(ctx, create)
	require.ErrorContains(t, err, "is taken")

	start := &criv1.StartContainerRequest{ContainerId: made.ContainerId}
	_, err = c.ExecSync(ctx, &criv1.ExecSyncRequest{ContainerId: made.ContainerId})
	require.ErrorContains(t, err, "not running")
	_, err = c.StartContainer(ctx, start)
	require.NoError(t, err)
	_, err = c.StartContainer(ctx, start)
	require.ErrorContains(t, err, "CONTAINER_RUNNING")
	_, err = c.StartContainer(ctx, &criv1.StartContainerRequest{ContainerId: "nobody"})
	require.ErrorContains(t, err, "NotFound")
	_, err = c.StopContainer(ctx, &criv1.StopContainerRequest{ContainerId: "nobody"})
	require.NoError(t, err)

	limits := &criv1.LinuxContainerResources{CpuShares: 512}
	_, err = c.UpdateContainerResources(ctx, &criv1.UpdateContainerResourcesRequest{ContainerId: made.ContainerId,
		Linux: limits})
	require.NoError(t, err)
	limits.CpuShares = 1 // what was handed over is not shared
	st, err := c.ContainerStatus(ctx, &criv1.ContainerStatusRequest{ContainerId: made.ContainerId})
	require.NoError(t, err)
	assert.Equal(t, int64(512), st.Status.Resources.Linux.CpuShares)

	grow := &criv1.UpdatePodSandboxResourcesRequest{PodSandboxId: sb.PodSandboxId}
	_, err = c.UpdatePodSandboxResources(ctx, grow)
	require.NoError(t, err)
	_, err = c.StopPodSandbox(ctx, &criv1.StopPodSandboxRequest{PodSandboxId: sb.PodSandboxId})
	require.NoError(t, err)
	_, err = c.UpdatePodSandboxResources(ctx, grow)
	require.ErrorContains(t, err, "is not ready")
	create.Config.Metadata.Attempt = 1
	_, err = c.CreateContainer(ctx, create)
	require.ErrorContains(t, err, "is not running")
	list, err := c.ListContainers(ctx,
		&criv1.ListContainersRequest{Filter: &criv1.ContainerFilter{PodSandboxId: sb.PodSandboxId}})
	require.NoError(t, err)
	require.Len(t, list.Containers, 1)
	assert.Equal(t, criv1.ContainerState_CONTAINER_EXITED, list.Containers[0].State)
	_, err = c.RemoveContainer(ctx, &criv1.RemoveContainerRequest{ContainerId: made.ContainerId})
	require.NoError(t, err)
	_, err = c.RemovePodSandbox(ctx, &criv1.RemovePodSandboxRequest{PodSandboxId: sb.PodSandboxId})
	require.NoError(t, err)
	_, err = c.PodSandboxStatus(ctx, &criv1.PodSandboxStatusRequest{PodSandboxId: sb.PodSandboxId})
	require.ErrorContains(t, err, "NotFound")
	_, err = c.RunPodSandbox(ctx, &criv1.RunPodSandboxRequest{Config: config})
	require.NoError(t, err, "the name is free again")

	_, err = c.CheckpointContainer(ctx, &criv1.CheckpointContainerRequest{})
	require.ErrorContains(t, err, "Unimplemented")
	rc, err := c.RuntimeConfig(ctx, &criv1.RuntimeConfigRequest{})
	require.NoError(t, err)
	assert.Equal(t, criv1.CgroupDriver_CGROUPFS, rc.Linux.CgroupDriver)
	_, err = c.UpdateRuntimeConfig(ctx, &criv1.UpdateRuntimeConfigRequest{})
	require.NoError(t, err)
}

func TestAddresses(t *testing.T) {
	var next []string
	rt := fake.New(fake.Options{PodIPs: func(pod runtime.PodRef) []string { return next }})
	for name, ips := range map[string][]string{"none": nil, "one": {"10.0.0.7"}, "two": {"10.0.0.7", "fd00::7"}} {
		next = ips
		pod := testpod.New(name, testpod.Containers("main"))
		require.NoError(t, rt.Seed(pod))
		assert.Equal(t, ips, inspect(t, rt, pod).IPs, name)
	}
	rt = fake.New(fake.Options{})
	pods := fake.Pods(2, 1)
	pods[1].Spec.HostNetwork = true
	require.NoError(t, rt.Seed(pods...))
	assert.Len(t, inspect(t, rt, pods[0]).IPs, 1)
	assert.Empty(t, inspect(t, rt, pods[1]).IPs)
}

func TestCallsOfImages(t *testing.T) {
	rt := fake.New(fake.Options{})
	images := imagesOf(rt)
	spec := &criv1.ImageSpec{Image: "app:latest", UserSpecifiedImage: "app"}
	_, err := images.PullImage(t.Context(),
		&criv1.PullImageRequest{Image: spec, Auth: &criv1.AuthConfig{Username: "me"}})
	require.NoError(t, err)
	call := rt.Calls(fake.Target{Image: "app"})[0]
	assert.Equal(t, []string{"PullImage", "app", "app:latest", "me"},
		[]string{call.Method, call.Image, call.ID, call.Username})
}

func TestConditions(t *testing.T) {
	rt := fake.New(fake.Options{})
	require.NoError(t, rt.Check(t.Context()))
	rt.SetCondition(criv1.NetworkReady, false, "NetworkPluginNotReady", "no CNI")
	require.ErrorContains(t, rt.Check(t.Context()), "no CNI")
	rt.RemoveCondition(criv1.NetworkReady)
	require.ErrorContains(t, rt.Check(t.Context()), "does not report whether NetworkReady")
	rt.SetCondition(criv1.NetworkReady, true, "", "")
	require.NoError(t, rt.Check(t.Context()))
}
