package volume

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// checkLabels refuses a persistent volume whose containers have different SELinux labels: the files can have one only
// (kubelet: GetMountSELinuxLabel). No volume of this package can be mounted with a label, so the runtime labels the
// files, whatever the pod's seLinuxChangePolicy is.
func (p Claim) checkLabels(pod *v1.Pod, volume string, pv *v1.PersistentVolume) error {
	if !p.SELinux {
		return nil
	}
	labels := seLinuxLabels(pod, volume)
	if len(labels) < 2 {
		return nil
	}
	mode := accessMode(pv)
	refused := mode == "RWOP" || !p.onlyOncePod
	p.measure.Emit(SELinuxConflict{AccessMode: mode, Refused: refused})
	if !refused {
		return nil
	}
	return fmt.Errorf("multiple SELinux labels found: %s", strings.Join(labels, ","))
}

// seLinuxLabels returns the labels of the containers that use a volume, without those whose files have the same label.
// The role and the type of a process are not in the label of its files. What a container leaves open is the same for
// all containers here.
func seLinuxLabels(pod *v1.Pod, volume string) (labels []string) {
	seen := map[[2]string]bool{}
	for _, c := range podspec.Containers(&pod.Spec) {
		var o *v1.SELinuxOptions
		if sc := pod.Spec.SecurityContext; sc != nil {
			o = sc.SELinuxOptions
		}
		if sc := c.SecurityContext; sc != nil {
			o = cmp.Or(sc.SELinuxOptions, o)
		}
		if o == nil || *o == (v1.SELinuxOptions{}) || seen[[2]string{o.User, o.Level}] ||
			!slices.ContainsFunc(c.VolumeMounts, func(m v1.VolumeMount) bool { return m.Name == volume }) {
			continue
		}
		seen[[2]string{o.User, o.Level}] = true
		labels = append(labels, strings.Join([]string{o.User, o.Role, o.Type, o.Level}, ":"))
	}
	return labels
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
