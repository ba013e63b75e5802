package translate

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

func withMount(m v1.VolumeMount) func(*Container) {
	return func(c *Container) {
		c.Volumes = map[string]runtime.Volume{"data": {HostPath: "/vol/data", Relabel: true}}
		m.Name = "data"
		c.Spec.VolumeMounts = append(c.Spec.VolumeMounts, m)
	}
}

func TestSubPathRequest(t *testing.T) {
	var got runtime.SubPath
	in := sample(withMount(v1.VolumeMount{MountPath: "/whole"}),
		withMount(v1.VolumeMount{MountPath: "/part", SubPathExpr: "logs/$(POD)", ReadOnly: true}), func(c *Container) {
			c.Pod.Dir = "/pods/1234"
			c.Spec.Env = []v1.EnvVar{{Name: "POD",
				ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.name"}}}}
			c.SubPath = func(_ context.Context, req runtime.SubPath) (string, error) {
				got = req
				return "/safe/1", nil
			}
		})
	config, err := ContainerConfig(t.Context(), in)
	require.NoError(t, err)
	assert.Equal(t, runtime.SubPath{
		Pod:        runtime.RefOf(in.Pod.Spec),
		Container:  "main",
		Index:      1,
		VolumeName: "data",
		Volume:     in.Volumes["data"],
		Path:       "logs/web",
		ReadOnly:   true,
		Dir:        "/pods/1234",
	}, got)
	assert.Equal(t, "/vol/data", config.Mounts[0].HostPath)
	assert.Equal(t, "/safe/1", config.Mounts[1].HostPath)
}

func TestSubPathErrorTellsNothingOfTheHost(t *testing.T) {
	cause := errors.New("open /vol/data/x: not a directory")
	in := sample(withMount(v1.VolumeMount{MountPath: "/part", SubPath: "x"}))
	const text = `failed to prepare subPath for volumeMount "data" of container "main"`
	_, err := ContainerConfig(t.Context(), in)
	assert.EqualError(t, err, text, "without a callback")

	in.SubPath = func(context.Context, runtime.SubPath) (string, error) { return "", cause }
	_, err = ContainerConfig(t.Context(), in)
	assert.EqualError(t, err, text)
	assert.ErrorIs(t, err, cause)
}

func TestMountErrors(t *testing.T) {
	for want, mount := range map[string]v1.VolumeMount{
		`volumeMount "data": Bidirectional mount propagation is available only to privileged containers`: {MountPropagation: new(v1.MountPropagationBidirectional)},
		`invalid MountPropagation mode: "Sideways"`:                                                      {MountPropagation: new(v1.MountPropagationMode("Sideways"))},
		`failed to resolve recursive read-only mode: unknown recursive read-only mode "Deep"`:            {ReadOnly: true, RecursiveReadOnly: new(v1.RecursiveReadOnlyMode("Deep"))},
		"unable to provision SubPath `..`: must not contain '..'":                                        {SubPath: ".."},
	} {
		mount.MountPath = "/x"
		_, err := ContainerConfig(t.Context(), sample(withMount(mount)))
		assert.EqualError(t, err, want)
	}
}

// Volumes that a container uses as devices.
func TestVolumeDevices(t *testing.T) {
	with := func(volumes map[string]runtime.Volume) func(c *Container) {
		return func(c *Container) {
			c.Spec.VolumeDevices = []v1.VolumeDevice{{Name: "disk", DevicePath: "/dev/x"}}
			c.Edits.Devices = []runtime.Device{{HostPath: "/dev/gpu", ContainerPath: "/dev/gpu", Permissions: "rw"}}
			c.Volumes = volumes
		}
	}
	for permissions, volume := range map[string]runtime.Volume{"mrw": {HostPath: "/v"}, "r": {HostPath: "/v", ReadOnly: true}} {
		config, err := ContainerConfig(t.Context(), sample(with(map[string]runtime.Volume{"disk": volume})))
		require.NoError(t, err)
		assert.Equal(t, []*criv1.Device{{HostPath: "/v", ContainerPath: "/dev/x", Permissions: permissions},
			{HostPath: "/dev/gpu", ContainerPath: "/dev/gpu", Permissions: "rw"}}, config.Devices)
	}
	_, err := ContainerConfig(t.Context(), sample(with(nil)))
	assert.EqualError(t, err, `volumeDevice "disk" of container "main": there is no such device`)
}

func TestMountsOnSELinux(t *testing.T) {
	in := sample(withMount(v1.VolumeMount{MountPath: "/data"}), func(c *Container) {
		c.Volumes["host"] = runtime.Volume{HostPath: "/host"}
		c.Spec.VolumeMounts = append(c.Spec.VolumeMounts, v1.VolumeMount{Name: "host", MountPath: "/host"})
		c.HostsPath, c.TerminationLogPath = "/pods/hosts", "/pods/log"
		c.Spec.TerminationMessagePath = "/dev/termination-log"
	})
	relabelled := func() (paths []string) {
		config, err := ContainerConfig(t.Context(), in)
		require.NoError(t, err)
		for _, m := range config.Mounts {
			if m.SelinuxRelabel {
				paths = append(paths, m.ContainerPath)
			}
		}
		return paths
	}
	assert.Empty(t, relabelled())
	in.Pod.Node.SELinux = true
	assert.Equal(t, []string{"/data", "/etc/hosts", "/dev/termination-log"}, relabelled())
}

func TestEdits(t *testing.T) {
	in := sample(withMount(v1.VolumeMount{MountPath: "/data"}), func(c *Container) {
		c.Edits = runtime.ContainerEdits{
			Devices:    []runtime.Device{{HostPath: "/dev/a", ContainerPath: "/dev/b", Permissions: "mrw"}},
			CDIDevices: []string{"vendor.example/gpu=0"},
			Mounts:     []runtime.BindMount{{HostPath: "/lib/vendor", ContainerPath: "/lib/vendor", ReadOnly: true}},
			CPUSet:     "0-1", MemorySet: "0",
			Resources: &v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceMemory: resource.MustParse("64Mi")}},
		}
		c.Pod.Groups = []int64{6, 8, 8}
		c.Pod.Spec.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: new(int64(5)), SupplementalGroups: []int64{6}}
	})
	config, err := ContainerConfig(t.Context(), in)
	require.NoError(t, err)
	assert.Equal(t, []*criv1.Device{{HostPath: "/dev/a", ContainerPath: "/dev/b", Permissions: "mrw"}}, config.Devices)
	assert.Equal(t, []*criv1.CDIDevice{{Name: "vendor.example/gpu=0"}}, config.CDIDevices)
	require.Len(t, config.Mounts, 2)
	assert.Equal(t, &criv1.Mount{HostPath: "/lib/vendor", ContainerPath: "/lib/vendor", Readonly: true},
		config.Mounts[0])
	r := config.Linux.Resources
	assert.Equal(t, []any{"0-1", "0", int64(64 << 20)}, []any{r.CpusetCpus, r.CpusetMems, r.MemoryLimitInBytes})
	assert.Equal(t, []int64{5, 6, 8}, config.Linux.SecurityContext.SupplementalGroups)
}

func TestNeedsHostsFile(t *testing.T) {
	assert.True(t, NeedsHostsFile(sample()))
	assert.False(t, NeedsHostsFile(sample(func(c *Container) { c.PodIPs = nil })))
	assert.True(t, NeedsHostsFile(sample(func(c *Container) { c.PodIPs, c.Pod.Spec.Spec.HostNetwork = nil, true })))
	assert.False(t, NeedsHostsFile(sample(withMount(v1.VolumeMount{MountPath: "/etc/hosts"}))))
	assert.True(t, NeedsHostsFile(sample(withMount(v1.VolumeMount{MountPath: "/etc/hosts.d"}))))
}
