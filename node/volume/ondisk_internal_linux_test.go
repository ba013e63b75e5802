package volume

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	kruntime "github.com/kubeletkit/kubeletkit/runtime"
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

func podWith(volume v1.Volume) *v1.Pod {
	return testpod.New("web", testpod.Containers("main"), testpod.Volumes(volume))
}

// An agent that may not mount tells once that secrets are on disk.
func TestSecretsOnDiskAreLogged(t *testing.T) {
	var lines []string
	volume := v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{
		Items: []v1.DownwardAPIVolumeFile{{Path: "name", FieldRef: &v1.ObjectFieldSelector{APIVersion: "v1",
			FieldPath: "metadata.name"}}},
	}}}
	m, err := New(Options{Observer: kruntime.Observer{NonBlocking: true,
		Logger: funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{})}})
	require.NoError(t, err)
	for _, uid := range []string{"u1", "u2"} {
		p := podWith(volume)
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

// An agent that may not mount was killed before a secret had all its files. The next one may mount,
// and leaves none of them on disk below its mount.
func TestNoSecretIsLeftBelowTheMount(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounting needs root")
	}
	pod, dir := podWith(v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{}}}),
		t.TempDir()
	place := PlaceOf(dir, "kubernetes.io/secret", "v").Dir
	killed := false
	before, err := New(Options{Sources: Sources{Objects: versioned("1"), before: func(step string) error {
		if killed = killed || step == "link "+newDataLink; killed {
			return errors.New("killed")
		}
		return nil
	}}})
	require.NoError(t, err)
	require.ErrorContains(t, withoutMounts(func() error {
		_, err := before.SetUp(t.Context(), pod, dir)
		return err
	}), "killed")
	left, err := filepath.Glob(filepath.Join(place, "..2*", "*"))
	require.NoError(t, err)
	require.Len(t, left, 2, "files of the secret are on disk")

	m, err := New(Options{Sources: Sources{Objects: versioned("2")}})
	require.NoError(t, err)
	defer func() {
		assert.NoError(t, m.Remove(context.WithoutCancel(t.Context()), kruntime.RefOf(pod), dir))
	}()
	_, err = m.SetUp(t.Context(), pod, dir)
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"a": "2", "b": "2"}, visible(t, place))
	require.NoError(t, unix.Unmount(place, 0), "the files are in memory")
	below, err := os.ReadDir(place)
	require.NoError(t, err)
	assert.Empty(t, below)
}
