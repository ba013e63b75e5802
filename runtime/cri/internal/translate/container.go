package translate

import (
	"context"
	"fmt"
	"slices"
	"strings"

	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/internal/crimeta"
)

// ContainerConfig returns the configuration of one instance of a container. The
// context is for the callbacks.
func ContainerConfig(ctx context.Context, in *Container) (*criv1.ContainerConfig, error) {
	c := in.Spec
	blocks, err := blockDevices(in)
	if err != nil {
		return nil, err
	}
	env, err := containerEnv(ctx, in)
	if err != nil {
		return nil, err
	}
	lookup := env.get
	command, err := expandAll("command", c.Command, lookup)
	if err != nil {
		return nil, err
	}
	args, err := expandAll("args", c.Args, lookup)
	if err != nil {
		return nil, err
	}
	mounted, err := mounts(ctx, in, lookup)
	if err != nil {
		return nil, err
	}
	security, err := containerSecurity(in)
	if err != nil {
		return nil, err
	}
	annotations, err := crimeta.ContainerAnnotations(in.Pod.Spec, c, in.RestartCount, in.Edits.Annotations)
	if err != nil {
		return nil, err
	}
	if in.Backoff > 0 {
		annotations[crimeta.AnnotationBackoff] = in.Backoff.String()
	}
	if len(in.ImageVolumes) > 0 {
		annotations[crimeta.AnnotationImageVolumes] = strings.Join(imagesOf(in.ImageVolumes), ",")
	}
	signal, err := stopSignal(c)
	if err != nil {
		return nil, err
	}
	if users := security.NamespaceOptions.UsernsOptions; users.Mode == criv1.NamespaceMode_POD {
		for _, m := range mounted { // all of them, as in kubelet
			m.UidMappings, m.GidMappings = users.Uids, users.Gids
		}
	}
	return &criv1.ContainerConfig{
		Metadata:    &criv1.ContainerMetadata{Name: c.Name, Attempt: uint32(in.RestartCount)},
		Image:       &criv1.ImageSpec{Image: in.Image.Ref, UserSpecifiedImage: c.Image},
		Command:     command,
		Args:        args,
		WorkingDir:  c.WorkingDir,
		Envs:        env.keyValues(),
		Mounts:      mounted,
		Devices:     append(blocks, devices(in.Edits.Devices)...),
		CDIDevices:  cdiDevices(in.Edits.CDIDevices),
		Labels:      crimeta.ContainerLabels(in.Pod.Spec, c),
		Annotations: annotations,
		LogPath:     crimeta.LogPath(c.Name, in.RestartCount),
		Stdin:       c.Stdin,
		StdinOnce:   c.StdinOnce,
		Tty:         c.TTY,
		StopSignal:  signal,
		Linux: &criv1.LinuxContainerConfig{
			Resources:       containerResources(in),
			SecurityContext: security,
		},
	}, nil
}

// blockDevices returns the volumes that the container uses as devices.
func blockDevices(in *Container) (out []*criv1.Device, err error) {
	for _, d := range in.Spec.VolumeDevices {
		volume, ok := in.Volumes[d.Name]
		if !ok || volume.HostPath == "" {
			return nil, fmt.Errorf("volumeDevice %q of container %q: there is no such device", d.Name, in.Spec.Name)
		}
		permissions := "mrw"
		if volume.ReadOnly {
			permissions = "r" // as in kubelet
		}
		out = append(out, &criv1.Device{HostPath: volume.HostPath, ContainerPath: d.DevicePath,
			Permissions: permissions})
	}
	return out, nil
}

// devices returns the devices in the form of CRI.
func devices(list []runtime.Device) (out []*criv1.Device) {
	for _, d := range list {
		out = append(out, &criv1.Device{HostPath: d.HostPath, ContainerPath: d.ContainerPath,
			Permissions: d.Permissions})
	}
	return out
}

// cdiDevices returns the names of devices in the form of CRI.
func cdiDevices(names []string) (out []*criv1.CDIDevice) {
	for _, name := range names {
		out = append(out, &criv1.CDIDevice{Name: name})
	}
	return out
}

// imagesOf returns the images of volumes, each once, in order.
func imagesOf(volumes map[string]*criv1.ImageSpec) []string {
	var images []string
	for _, image := range volumes {
		images = append(images, image.GetImage())
	}
	slices.Sort(images)
	return slices.Compact(images)
}
