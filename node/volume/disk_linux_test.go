package volume_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/node/volume"
	kruntime "github.com/kubeletkit/kubeletkit/runtime"
)

// A disk that is full, has no inodes or is read-only, and a file system in memory that cannot be
// mounted, are failures of their volumes, which the message names. Other pods have theirs, and
// the next attempt succeeds when the cause is gone.
func TestDisksThatFail(t *testing.T) {
	needsMount(t)
	h := newHeld()
	h.maps["default/conf"] = &v1.ConfigMap{Data: map[string]string{"a": string(make([]byte, 64<<10))}}
	h.secrets["default/s"] = &v1.Secret{Data: map[string][]byte{"a": []byte("1")}}
	remount := func(options string, flags uintptr) func(t *testing.T, disk string) {
		return func(t *testing.T, disk string) {
			t.Helper()
			require.NoError(t, syscall.Mount("", disk, "", syscall.MS_REMOUNT|flags, options))
		}
	}
	for name, tc := range map[string]struct {
		volume v1.Volume
		fail   func(t *testing.T, disk string)
		mend   func(t *testing.T, disk string)
		change func(p *v1.Pod) // in place of fail and mend
		want   error
	}{
		"full": {volume: configMapVolume("v", "conf", false), fail: func(t *testing.T, disk string) {
			t.Helper()
			require.ErrorIs(t, os.WriteFile(filepath.Join(disk, "large"), make([]byte, 8<<20), 0o600), syscall.ENOSPC)
		}, mend: func(t *testing.T, disk string) { require.NoError(t, os.Remove(filepath.Join(disk, "large"))) },
			want: syscall.ENOSPC},
		"no inodes":                {volume: configMapVolume("v", "conf", false), fail: remount("nr_inodes=14", 0), mend: remount("nr_inodes=10000", 0), want: syscall.ENOSPC},
		"read-only":                {volume: configMapVolume("v", "conf", false), fail: remount("", syscall.MS_RDONLY), mend: remount("", 0), want: syscall.EROFS},
		"read-only, an emptyDir":   {volume: emptyDir("v", v1.EmptyDirVolumeSource{}), fail: remount("", syscall.MS_RDONLY), mend: remount("", 0), want: syscall.EROFS},
		"no mount, an emptyDir":    {volume: emptyDir("v", v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}), change: noSuchGroup, want: syscall.EINVAL},
		"no mount, a secret":       {volume: secretVolume("v", "s"), change: noSuchGroup, want: syscall.EINVAL},
		"full, a second emptyDir":  {volume: emptyDir("v", v1.EmptyDirVolumeSource{}), fail: remount("nr_inodes=8", 0), mend: remount("nr_inodes=10000", 0), want: syscall.ENOSPC},
		"read-only, while removed": {volume: configMapVolume("v", "conf", false)},
	} {
		t.Run(name, func(t *testing.T) {
			disk := t.TempDir()
			require.NoError(t, syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=1m,nr_inodes=10000"))
			t.Cleanup(func() { assert.NoError(t, syscall.Unmount(disk, 0)) })
			m := contentManager(t, volume.Sources{Objects: h})
			other := testpod.New("other", testpod.UID("u2"), testpod.Containers("main"), testpod.Volumes(tc.volume))
			others, err := m.SetUp(t.Context(), other, filepath.Join(disk, "u2"))
			require.NoError(t, err)
			files := func() (names []string) {
				entries, err := os.ReadDir(others["v"].HostPath)
				require.NoError(t, err)
				for _, e := range entries {
					names = append(names, e.Name())
				}
				return names
			}
			before := files()

			p, dir := testpod.New("web", testpod.UID(types.UID("u1")), testpod.Containers("main"),
				testpod.Volumes(tc.volume)), filepath.Join(disk, "u1")
			if name == "read-only, while removed" {
				_, err := m.SetUp(t.Context(), p, dir)
				require.NoError(t, err)
				remount("", syscall.MS_RDONLY)(t, disk)
				require.ErrorIs(t, m.Remove(t.Context(), kruntime.RefOf(p), dir), syscall.EROFS)
				remount("", 0)(t, disk)
			} else {
				failing := p
				if tc.change != nil {
					failing = p.DeepCopy()
					tc.change(failing)
				} else {
					tc.fail(t, disk)
				}
				for range 3 {
					_, err := m.SetUp(t.Context(), failing, dir)
					require.ErrorIs(t, err, tc.want)
					failed := volume.SetUpErrors(err)
					require.Len(t, failed, 1)
					assert.Contains(t, failed[0].Message(), `MountVolume.SetUp failed for volume "v" : `)
					_, err = m.SetUp(t.Context(), other, filepath.Join(disk, "u2"))
					require.NoError(t, err, "the other pod is as it was")
				}
				if tc.mend != nil {
					tc.mend(t, disk)
				} else {
					require.NoError(t, m.Remove(t.Context(), kruntime.RefOf(p), dir))
				}
				_, err = m.SetUp(t.Context(), p, dir)
				require.NoError(t, err)
			}
			require.NoError(t, m.Remove(t.Context(), kruntime.RefOf(p), dir))
			assert.NoDirExists(t, dir)
			assert.Equal(t, before, files())
			require.NoError(t, m.Remove(t.Context(), kruntime.RefOf(other), filepath.Join(disk, "u2")))
		})
	}
}

// noSuchGroup gives the pod a group that no file system can have: the mount fails.
func noSuchGroup(p *v1.Pod) {
	p.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: ptr.To[int64](1 << 33)}
}
