package volume

import (
	"errors"
	goruntime "runtime"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// withoutMounts calls f on a thread that may not mount.
func withoutMounts(f func() error) error {
	done := make(chan error)
	go func() {
		goruntime.LockOSThread() // it ends with the goroutine
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var caps [2]unix.CapUserData
		err := unix.Capget(&header, &caps[0])
		if err == nil {
			caps[0].Effective &^= 1 << unix.CAP_SYS_ADMIN
			err = unix.Capset(&header, &caps[0])
		}
		if err == nil {
			err = f()
		}
		done <- err
	}()
	return <-done
}

// An agent that may not mount tells once that secrets are on disk.
func TestSecretsOnDiskAreLogged(t *testing.T) {
	var lines []string
	volume := v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{
		Items: []v1.DownwardAPIVolumeFile{{Path: "name", FieldRef: &v1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.name"}}},
	}}}
	m, err := New(Options{Logger: funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{})})
	require.NoError(t, err)
	for _, uid := range []string{"u1", "u2"} {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "u"}, Spec: v1.PodSpec{
			Volumes:    []v1.Volume{volume},
			Containers: []v1.Container{{Name: "main", VolumeMounts: []v1.VolumeMount{{Name: "v", MountPath: "/v"}}}},
		}}
		dir := t.TempDir()
		require.NoError(t, withoutMounts(func() error {
			ready, err := m.SetUp(t.Context(), p, dir)
			if err == nil && !isWritten(ready["v"].HostPath) {
				err = errors.New("the volume is not written")
			}
			return err
		}), uid)
	}
	require.Len(t, lines, 1)
	assert.True(t, strings.Contains(lines[0], "on disk") && strings.Contains(lines[0], "CAP_SYS_ADMIN"), lines[0])
}
