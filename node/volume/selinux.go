package volume

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// seLinux is what is known of SELinux on the node.
type seLinux struct {
	// fileLabel is that of [Sources], onlyOncePod that of [Options].
	fileLabel   string
	onlyOncePod bool
	measure     runtime.MeasureFunc
}

// checkLabels refuses a persistent volume whose containers have different SELinux labels: the files can have one only,
// whether the volume is mounted with it or the runtime labels the files (kubelet: GetMountSELinuxLabel).
func (s seLinux) checkLabels(pod *v1.Pod, volume string, pv *v1.PersistentVolume) error {
	labels := s.labels(pod, volume)
	if len(labels) < 2 {
		return nil
	}
	s.measure.Emit(SELinuxConflict{AccessMode: accessMode(pv), Refused: s.mounts(pv)})
	if !s.mounts(pv) {
		return nil
	}
	return fmt.Errorf("multiple SELinux labels found: %s", strings.Join(labels, ","))
}

// labels returns the labels that the files of a volume are to have for the containers that use it, each once. There is
// none for a container without SELinux options.
func (s seLinux) labels(pod *v1.Pod, volume string) (labels []string) {
	if s.fileLabel == "" {
		return nil
	}
	for _, c := range podspec.Containers(&pod.Spec) {
		var o *v1.SELinuxOptions
		if sc := pod.Spec.SecurityContext; sc != nil {
			o = sc.SELinuxOptions
		}
		if sc := c.SecurityContext; sc != nil {
			o = cmp.Or(sc.SELinuxOptions, o)
		}
		if o != nil && slices.ContainsFunc(c.VolumeMounts, func(m v1.VolumeMount) bool { return m.Name == volume }) {
			labels = append(labels, labelOf(o, s.fileLabel))
		}
	}
	slices.Sort(labels)
	return slices.Compact(labels)
}

// labelOf returns the label of the files of a container (go-selinux: InitLabels). The role and the type of a process
// are not in the label of its files. If the runtime chooses the level, the label ends with a colon. Without options it
// is empty.
func labelOf(o *v1.SELinuxOptions, fileLabel string) string {
	if *o == (v1.SELinuxOptions{}) {
		return ""
	}
	parts := strings.SplitN(fileLabel, ":", 4)
	parts[0] = cmp.Or(o.User, parts[0])
	if len(parts) == 4 { // the policy has levels, and the one here is only that of the default
		parts[3] = o.Level
	} else if o.Level != "" {
		parts = append(parts, o.Level)
	}
	return strings.Join(parts, ":")
}

// mountLabel returns the label that a volume is to be mounted with for the pod. It is empty if the pod has opted out,
// and if the level is not known: then the runtime labels the files.
func (s seLinux) mountLabel(pod *v1.Pod, volume string) string {
	labels := s.labels(pod, volume)
	if len(labels) != 1 || strings.HasSuffix(labels[0], ":") {
		return ""
	}
	if sc := pod.Spec.SecurityContext; sc != nil && sc.SELinuxChangePolicy != nil &&
		*sc.SELinuxChangePolicy == v1.SELinuxChangePolicyRecursive {
		return ""
	}
	return labels[0]
}

// mounts reports whether volumes with the access modes of a volume can be mounted with a label (kubelet:
// VolumeSupportsSELinuxMount).
func (s seLinux) mounts(pv *v1.PersistentVolume) bool {
	return !s.onlyOncePod || accessMode(pv) == "RWOP"
}

// label sets the label that the volume of a request is mounted with, and returns the one that the pod requests, if the
// volume can have one. All pods that use a volume must request the same (kubelet: AddPodToVolume). A volume keeps its
// label, also none, until no pod uses it. name is that of the volume in the pod.
func (s *persistentVolumes) label(ctx context.Context, p PersistentPlugin, key, name string,
	req *PersistentRequest) (wanted string, can bool, err error) {
	if s.seLinux.fileLabel == "" || req.Block || p.PerPod() {
		return "", false, nil
	}
	mounted, own, err := p.SELinuxMountLabel(req.Place)
	if err != nil {
		return "", false, err
	}
	req.SELinuxLabel = mounted
	can, err = p.SupportsSELinuxMount(ctx, *req)
	switch {
	case err != nil && !own:
		return "", false, err
	case err != nil || !can: // a pod that has the volume needs no answer
		return "", false, nil
	}
	wanted = s.seLinux.mountLabel(req.Pod, name)
	if !own && s.seLinux.mounts(req.Volume) {
		req.SELinuxLabel = wanted
	}
	// As kubelet has it (getVolumePluginNameWithDriver).
	plugin := strings.Replace(measuredName(p, p.Key(req.Volume)), p.Name()+":", p.Name()+"/", 1)
	err = s.labelAsOthers(p, plugin, key, wanted, own, req)
	return wanted, err == nil, err
}

// labelAsOthers compares the label with those of the pods that use the volume. Unless the volume is mounted for the pod
// already, own, it sets the label of the request to that of others.
func (s *persistentVolumes) labelAsOthers(p PersistentPlugin, plugin, key, wanted string, own bool,
	req *PersistentRequest) error {
	users, err := s.usersOf(filepath.Dir(req.podDir()), key)
	if err != nil {
		return err
	}
	first, admits := wanted != "", s.seLinux.mounts(req.Volume)
	for _, user := range users {
		s.mu.Lock()
		other, known := s.labels[user]
		s.mu.Unlock()
		first = first && !known
		if user == req.StateDir {
			continue
		}
		mounted, found, err := p.SELinuxMountLabel(placeOfState(user))
		if err != nil {
			return err
		}
		if !known {
			other = mounted
		}
		if (known || found) && other != wanted {
			s.seLinux.measure.Emit(SELinuxConflict{Plugin: plugin, AccessMode: accessMode(req.Volume), Refused: admits})
			if admits {
				uid := Place{StateDir: user}.PodUID()
				return &processError{fmt.Errorf("conflicting SELinux labels of volume %s: %q and %q; the pod with the UID "+
					"%s uses it", req.Volume.Name, other, wanted, uid)}
			}
		}
		if found && !own {
			req.SELinuxLabel = mounted
		}
	}
	if first {
		s.seLinux.measure.Emit(SELinuxAdmitted{Plugin: plugin, AccessMode: accessMode(req.Volume)})
	}
	return nil
}

// accessMode returns the widest access mode of a volume, as kubelet's metrics have it.
func accessMode(pv *v1.PersistentVolume) string {
	for _, m := range []struct {
		mode v1.PersistentVolumeAccessMode
		name string
	}{{v1.ReadWriteMany, "RWX"}, {v1.ReadOnlyMany, "ROX"}, {v1.ReadWriteOnce, "RWO"}, {v1.ReadWriteOncePod, "RWOP"}} {
		if slices.Contains(pv.Spec.AccessModes, m.mode) {
			return m.name
		}
	}
	return ""
}
