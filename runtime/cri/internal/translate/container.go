package translate

import (
	"context"
	"fmt"
	"slices"
	"strings"

	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime/internal/crimeta"
)

// ContainerConfig returns the configuration of one instance of a container. The
// context is for the callbacks.
func ContainerConfig(ctx context.Context, in *Container) (*criv1.ContainerConfig, error) {
	c := in.Spec
	if len(c.VolumeDevices) > 0 {
		return nil, fmt.Errorf("volumeDevice %q of container %q: block devices are not supported", c.VolumeDevices[0].Name, c.Name)
	}
	env, err := containerEnv(ctx, in)
	if err != nil {
		return nil, err
	}
	lookup := in.lookup(env)
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
	annotations, err := crimeta.ContainerAnnotations(in.Pod.Spec, c, in.RestartCount, in.Extras.Annotations)
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
		for _, m := range mounted[len(in.Extras.Mounts):] {
			m.UidMappings, m.GidMappings = users.Uids, users.Gids
		}
	}
	return &criv1.ContainerConfig{
		Metadata:    &criv1.ContainerMetadata{Name: c.Name, Attempt: uint32(in.RestartCount)},
		Image:       &criv1.ImageSpec{Image: in.Image.Ref, UserSpecifiedImage: c.Image},
		Command:     command,
		Args:        args,
		WorkingDir:  c.WorkingDir,
		Envs:        append(slices.Clone(in.Extras.Envs), env.keyValues()...),
		Mounts:      mounted,
		Devices:     in.Extras.Devices,
		CDIDevices:  in.Extras.CDIDevices,
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

// lookup returns a function that finds variables in env, and then in Extras.
func (c *Container) lookup(env *environment) func(string) (string, bool) {
	return func(name string) (string, bool) {
		if value, ok := env.get(name); ok {
			return value, true
		}
		for _, kv := range slices.Backward(c.Extras.Envs) {
			if kv.Key == name {
				return string(kv.Value), true
			}
		}
		return "", false
	}
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
