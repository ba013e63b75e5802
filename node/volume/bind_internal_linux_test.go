package volume

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
)

// The order of the options is kubelet's, which sorts them.
func TestAttributesOfMountOptions(t *testing.T) {
	for name, tc := range map[string]struct {
		options    []string
		annotation string
		set, unset uint64
	}{
		"none":               {},
		"some":               {options: []string{"noexec", "", "nodev", "noexec"}, set: unix.MOUNT_ATTR_NOEXEC | unix.MOUNT_ATTR_NODEV},
		"taken away":         {options: []string{"suid", "exec"}, unset: unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NOEXEC},
		"of the file system": {options: []string{"data=ordered", "sync"}},
		"contradictory":      {options: []string{"rw", "noexec", "ro", "exec"}, set: unix.MOUNT_ATTR_NOEXEC, unset: unix.MOUNT_ATTR_RDONLY},
		"times":              {options: []string{"strictatime", "noatime"}, set: unix.MOUNT_ATTR_STRICTATIME, unset: unix.MOUNT_ATTR__ATIME},
		"the annotation":     {options: []string{"ro"}, annotation: "nodev,,noexec", set: unix.MOUNT_ATTR_NOEXEC | unix.MOUNT_ATTR_NODEV},
	} {
		t.Run(name, func(t *testing.T) {
			pv := &v1.PersistentVolume{Spec: v1.PersistentVolumeSpec{MountOptions: tc.options}}
			if tc.annotation != "" {
				pv.Annotations = map[string]string{v1.MountOptionAnnotation: tc.annotation}
			}
			set, unset := allAttributes(mountOptions(pv))
			assert.Equal(t, []uint64{tc.set, tc.unset}, []uint64{set, unset})
		})
	}
}

// A hint is given only where it helps.
func TestErrorsOfMountOptions(t *testing.T) {
	for err, want := range map[unix.Errno]string{
		unix.EPERM:  "open_tree: operation not permitted; the agent needs CAP_SYS_ADMIN for mount options",
		unix.ENOSYS: "open_tree: function not implemented; mount options need Linux 5.12",
		unix.ENOENT: "open_tree: no such file or directory",
		unix.EINVAL: "open_tree: invalid argument",
	} {
		got := bindError("open_tree", err)
		require.EqualError(t, got, want)
		assert.ErrorIs(t, got, err)
	}
}
