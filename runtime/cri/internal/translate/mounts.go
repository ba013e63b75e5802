package translate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// mounts returns the mounts of the container: extra ones, its volumes, the hosts file and
// the termination log. lookup finds environment variables, for subPathExpr.
func mounts(ctx context.Context, in *Container, lookup func(string) (string, bool)) ([]*criv1.Mount, error) {
	var out []*criv1.Mount
	for _, m := range in.Edits.Mounts {
		out = append(out, &criv1.Mount{HostPath: m.HostPath, ContainerPath: m.ContainerPath, Readonly: m.ReadOnly})
	}
	for i := range in.Spec.VolumeMounts {
		m, err := volumeMount(ctx, in, i, lookup)
		if err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	if in.HostsPath != "" && NeedsHostsFile(in) {
		out = append(out, &criv1.Mount{HostPath: in.HostsPath, ContainerPath: hostsPath,
			SelinuxRelabel: in.Pod.Node.SELinux})
	}
	if in.TerminationLogPath != "" && in.Spec.TerminationMessagePath != "" {
		out = append(out, &criv1.Mount{
			HostPath:       in.TerminationLogPath,
			ContainerPath:  Absolute(in.Spec.TerminationMessagePath),
			SelinuxRelabel: in.Pod.Node.SELinux,
		})
	}
	return out, nil
}

// volumeMount returns the mount for the i-th of the container's volumeMounts.
func volumeMount(ctx context.Context, in *Container, i int, lookup func(string) (string, bool)) (*criv1.Mount, error) {
	mount := &in.Spec.VolumeMounts[i]
	vol, ok := in.Volumes[mount.Name]
	if !ok {
		return nil, fmt.Errorf("cannot find volume %q to mount into container %q", mount.Name, in.Spec.Name)
	}
	hostPath, image := vol.HostPath, in.ImageVolumes[mount.Name]
	sub, err := subPath(mount, lookup)
	if err != nil {
		return nil, err
	}
	imageSubPath := ""
	switch {
	case image != nil:
		hostPath, imageSubPath = "", sub // the runtime finds it in the image
	case sub != "":
		if hostPath, err = prepareSubPath(ctx, in, i, vol, sub); err != nil {
			return nil, err
		}
	}
	prop, err := propagation(mount, in.Spec)
	if err != nil {
		return nil, err
	}
	recursive, err := recursiveReadOnly(mount, in.RecursiveReadOnly)
	if err != nil {
		return nil, fmt.Errorf("failed to resolve recursive read-only mode: %w", err)
	}
	return &criv1.Mount{
		Image:             image,
		ImageSubPath:      imageSubPath,
		HostPath:          hostPath,
		ContainerPath:     Absolute(mount.MountPath),
		Readonly:          mount.ReadOnly || vol.ReadOnly || image != nil,
		RecursiveReadOnly: recursive,
		SelinuxRelabel:    vol.Relabel && in.Pod.Node.SELinux,
		Propagation:       prop,
		MountOptions:      mount.BindMountOptions,
	}, nil
}

// subPath returns the path inside the volume, "" for the whole volume. Every variable in a
// subPathExpr must have a value.
func subPath(mount *v1.VolumeMount, lookup func(string) (string, bool)) (string, error) {
	sub := mount.SubPath
	if mount.SubPathExpr != "" {
		missing := map[string]bool{}
		var err error
		sub, err = podspec.ExpandLimit(mount.SubPathExpr, maxPath, func(name string) (string, bool) {
			value, _ := lookup(name)
			if value == "" {
				missing[name] = true
			}
			return value, true
		})
		if err != nil {
			return "", fmt.Errorf("subPathExpr of volumeMount %q: %w", mount.Name, err)
		}
		if len(missing) > 0 {
			return "", fmt.Errorf("missing value for %s", strings.Join(slices.Sorted(maps.Keys(missing)), ", "))
		}
	}
	if path.IsAbs(sub) {
		return "", fmt.Errorf("error SubPath `%s` must not be an absolute path", sub)
	}
	if slices.Contains(strings.Split(sub, "/"), "..") {
		return "", fmt.Errorf("unable to provision SubPath `%s`: must not contain '..'", sub)
	}
	return sub, nil
}

// prepareSubPath prepares the sub-path and returns its path on the host.
func prepareSubPath(ctx context.Context, in *Container, i int, vol runtime.Volume, sub string) (string, error) {
	mount := &in.Spec.VolumeMounts[i]
	text := fmt.Sprintf("failed to prepare subPath for volumeMount %q of container %q", mount.Name, in.Spec.Name)
	if in.SubPath == nil {
		return "", &hiddenError{text, errors.New("sub-paths are not supported")}
	}
	hostPath, err := in.SubPath(ctx, runtime.SubPath{
		Pod:        runtime.RefOf(in.Pod.Spec),
		Container:  in.Spec.Name,
		Index:      i,
		VolumeName: mount.Name,
		Volume:     vol,
		Path:       sub,
		ReadOnly:   mount.ReadOnly || vol.ReadOnly,
		Dir:        in.Pod.Dir,
	})
	if err != nil {
		return "", &hiddenError{text, err}
	}
	return hostPath, nil
}

// hiddenError does not contain its cause in its text, because that would show the owner
// of the pod the host's file system. [Hidden] returns the cause, for the log.
type hiddenError struct {
	text  string
	cause error
}

func (e *hiddenError) Error() string { return e.text }
func (e *hiddenError) Unwrap() error { return e.cause }

// Hidden returns the cause that is not in the text of an error of [ContainerConfig], or
// nil.
func Hidden(err error) error {
	var hidden *hiddenError
	if errors.As(err, &hidden) {
		return hidden.cause
	}
	return nil
}

// propagation returns the propagation of mounts below this one. By the API, only
// privileged containers may propagate mounts to the host.
func propagation(mount *v1.VolumeMount, c *v1.Container) (criv1.MountPropagation, error) {
	if mount.MountPropagation == nil {
		return criv1.MountPropagation_PROPAGATION_PRIVATE, nil
	}
	switch mode := *mount.MountPropagation; mode {
	case v1.MountPropagationNone:
		return criv1.MountPropagation_PROPAGATION_PRIVATE, nil
	case v1.MountPropagationHostToContainer:
		return criv1.MountPropagation_PROPAGATION_HOST_TO_CONTAINER, nil
	case v1.MountPropagationBidirectional:
		if c.SecurityContext == nil || !isTrue(c.SecurityContext.Privileged) {
			return 0,
				fmt.Errorf("volumeMount %q: Bidirectional mount propagation is available only to privileged containers",
					mount.Name)
		}
		return criv1.MountPropagation_PROPAGATION_BIDIRECTIONAL, nil
	default:
		return 0, fmt.Errorf("invalid MountPropagation mode: %q", mode)
	}
}

// recursiveReadOnly reports whether the mount is recursively read-only.
func recursiveReadOnly(mount *v1.VolumeMount, supported bool) (bool, error) {
	if mount.RecursiveReadOnly == nil || *mount.RecursiveReadOnly == v1.RecursiveReadOnlyDisabled {
		return false, nil
	}
	if !mount.ReadOnly {
		return false, fmt.Errorf("volume %q requested recursive read-only mode, but it is not read-only", mount.Name)
	}
	if p := mount.MountPropagation; p != nil && *p != v1.MountPropagationNone {
		return false, fmt.Errorf("volume %q requested recursive read-only mode, but it is not compatible with "+
			"propagation %q", mount.Name, *p)
	}
	switch mode := *mount.RecursiveReadOnly; mode {
	case v1.RecursiveReadOnlyIfPossible:
		return supported, nil
	case v1.RecursiveReadOnlyEnabled:
		if !supported {
			return false,
				fmt.Errorf("volume %q requested recursive read-only mode, but it is not supported by the runtime",
					mount.Name)
		}
		return true, nil
	default:
		return false, fmt.Errorf("unknown recursive read-only mode %q", mode)
	}
}

// Absolute returns a path in the container; relative ones start at its root.
func Absolute(p string) string {
	if path.IsAbs(p) {
		return p
	}
	return "/" + p
}
