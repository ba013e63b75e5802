package volume

import (
	"testing"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// The label of files of a process (go-selinux: InitLabels).
func TestLabelOf(t *testing.T) {
	const levels, plain = "system_u:object_r:container_file_t:s0", "system_u:object_r:container_file_t"
	for name, tc := range map[string]struct {
		options   v1.SELinuxOptions
		fileLabel string
		want      string
	}{
		"level":              {v1.SELinuxOptions{Level: "s0:c1,c2"}, levels, "system_u:object_r:container_file_t:s0:c1,c2"},
		"all":                {v1.SELinuxOptions{User: "u", Role: "r", Type: "t", Level: "s0"}, levels, "u:object_r:container_file_t:s0"},
		"no level":           {v1.SELinuxOptions{Type: "t"}, levels, "system_u:object_r:container_file_t:"},
		"nothing":            {v1.SELinuxOptions{}, levels, ""},
		"without levels":     {v1.SELinuxOptions{User: "u", Type: "t"}, plain, "u:object_r:container_file_t"},
		"level all the same": {v1.SELinuxOptions{Level: "s0"}, plain, "system_u:object_r:container_file_t:s0"},
		"range":              {v1.SELinuxOptions{Level: "s0-s0:c1"}, "a:b:c:s0-s0:c0.c1023", "a:b:c:s0-s0:c1"},
	} {
		assert.Equal(t, tc.want, labelOf(&tc.options, tc.fileLabel), name)
	}
}

// The label that a volume is mounted with (kubelet: GetMountSELinuxLabel).
func TestMountLabel(t *testing.T) {
	const c1 = "system_u:object_r:container_file_t:s0:c1"
	level := func(l string) *v1.SELinuxOptions { return &v1.SELinuxOptions{Level: l} }
	for name, tc := range map[string]struct {
		pod        *v1.PodSecurityContext
		containers []*v1.SELinuxOptions // nil: no security context
		others     []*v1.SELinuxOptions // of containers without the volume
		off        bool
		want       string
	}{
		"none":                 {containers: []*v1.SELinuxOptions{nil}},
		"of the pod":           {pod: &v1.PodSecurityContext{SELinuxOptions: level("s0:c1")}, containers: []*v1.SELinuxOptions{nil, nil}, want: c1},
		"of a container":       {containers: []*v1.SELinuxOptions{level("s0:c1"), nil}, want: c1},
		"over that of the pod": {pod: &v1.PodSecurityContext{SELinuxOptions: level("s0:c2")}, containers: []*v1.SELinuxOptions{level("s0:c1")}, want: c1},
		"of another":           {containers: []*v1.SELinuxOptions{nil}, others: []*v1.SELinuxOptions{level("s0:c1")}},
		"another differs":      {containers: []*v1.SELinuxOptions{level("s0:c1")}, others: []*v1.SELinuxOptions{level("s0:c2")}, want: c1},
		"different":            {containers: []*v1.SELinuxOptions{level("s0:c1"), level("s0:c2")}},
		"no level":             {containers: []*v1.SELinuxOptions{{Type: "t"}}},
		"empty":                {containers: []*v1.SELinuxOptions{{}}},
		"MountOption":          {pod: &v1.PodSecurityContext{SELinuxOptions: level("s0:c1"), SELinuxChangePolicy: ptr.To(v1.SELinuxChangePolicyMountOption)}, containers: []*v1.SELinuxOptions{nil}, want: c1},
		"Recursive":            {pod: &v1.PodSecurityContext{SELinuxOptions: level("s0:c1"), SELinuxChangePolicy: ptr.To(v1.SELinuxChangePolicyRecursive)}, containers: []*v1.SELinuxOptions{nil}},
		"SELinux is off":       {containers: []*v1.SELinuxOptions{level("s0:c1")}, off: true},
	} {
		pod := &v1.Pod{}
		pod.Spec.SecurityContext = tc.pod
		add := func(o *v1.SELinuxOptions, volume string) {
			c := v1.Container{VolumeMounts: []v1.VolumeMount{{Name: volume}}}
			if o != nil {
				c.SecurityContext = &v1.SecurityContext{SELinuxOptions: o}
			}
			pod.Spec.Containers = append(pod.Spec.Containers, c)
		}
		for _, o := range tc.containers {
			add(o, "data")
		}
		for _, o := range tc.others {
			add(o, "other")
		}
		s := seLinux{fileLabel: "system_u:object_r:container_file_t:s0"}
		if tc.off {
			s.fileLabel = ""
		}
		assert.Equal(t, tc.want, s.mountLabel(pod, "data"), name)
	}
}

// Which access modes a label is mounted for.
func TestMounts(t *testing.T) {
	modes := func(m ...v1.PersistentVolumeAccessMode) *v1.PersistentVolume {
		return &v1.PersistentVolume{Spec: v1.PersistentVolumeSpec{AccessModes: m}}
	}
	gate, without := seLinux{}, seLinux{onlyOncePod: true}
	for _, m := range []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce, v1.ReadOnlyMany, v1.ReadWriteMany} {
		assert.True(t, gate.mounts(modes(m)), m)
		assert.False(t, without.mounts(modes(m)), m)
	}
	assert.True(t, gate.mounts(modes(v1.ReadWriteOncePod)))
	assert.True(t, without.mounts(modes(v1.ReadWriteOncePod)))
}
