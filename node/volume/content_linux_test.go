package volume_test

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/node/volume"
	kruntime "github.com/kubeletkit/kubeletkit/runtime"
)

// A sub-path shows the files of the time when it was mounted, until it is mounted again.
func TestSubPathKeepsOldContent(t *testing.T) {
	needsMount(t)
	h := newHeld()
	h.maps["default/conf"] = &v1.ConfigMap{Data: map[string]string{"a": "1"}}
	m, dir := contentManager(t, volume.Sources{Objects: h}), filepath.Join(t.TempDir(), "u1")
	p := pod(configMapVolume("conf", "conf", false))
	cleanUp(t, m, p, dir)
	setUp := func() string {
		ready, err := m.SetUp(t.Context(), p, dir)
		require.NoError(t, err)
		sub, err := m.SubPath(t.Context(), kruntime.SubPath{
			Pod: kruntime.RefOf(p), Container: "main", VolumeName: "conf", Volume: ready["conf"], Path: "a", Dir: dir,
		})
		require.NoError(t, err)
		return sub
	}
	sub := setUp()
	h.maps["default/conf"] = &v1.ConfigMap{Data: map[string]string{"a": "2"}}
	_, err := m.SetUp(t.Context(), p, dir)
	require.NoError(t, err)
	read := func() string {
		data, err := os.ReadFile(sub)
		require.NoError(t, err)
		return string(data)
	}
	assert.Equal(t, "1", read())
	assert.Equal(t, sub, setUp(), "for the next instance of the container")
	assert.Equal(t, "2", read())
}

// When the disk is full, a volume keeps its files, and nothing is left of the attempt. On a
// disk that is read-only, what is unchanged is ready.
func TestFullAndReadOnlyDisk(t *testing.T) {
	needsMount(t)
	disk := t.TempDir()
	require.NoError(t, syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=256k"))
	t.Cleanup(func() { assert.NoError(t, syscall.Unmount(disk, 0)) })
	h := newHeld()
	m, dir := contentManager(t, volume.Sources{Objects: h}), filepath.Join(disk, "u1")
	p := pod(configMapVolume("conf", "conf", false))
	set := func(data map[string]string) (kruntime.Volume, error) {
		h.maps["default/conf"] = &v1.ConfigMap{Data: data}
		ready, err := m.SetUp(t.Context(), p, dir)
		return ready["conf"], err
	}
	large := strings.Repeat("x", 100<<10)
	_, err := set(map[string]string{"a": large, "b": large, "c": large})
	assert.ErrorIs(t, err, syscall.ENOSPC)
	v, err := set(map[string]string{"a": "1", "b": large})
	require.NoError(t, err, "there is room after the failure")

	for range 2 {
		again, err := set(map[string]string{"a": "2", "b": large, "c": large})
		assert.ErrorIs(t, err, syscall.ENOSPC)
		assert.Equal(t, v, again)
		assert.Equal(t, map[string]string{"a": "-rw-r--r-- 1"}, in(t, v.HostPath, "a"))
		entries, err := os.ReadDir(v.HostPath)
		require.NoError(t, err)
		assert.Len(t, entries, 4, "..data, its directory, a and b")
	}
	_, err = set(map[string]string{"a": "3"})
	require.NoError(t, err)

	require.NoError(t, syscall.Mount("", disk, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""))
	_, err = set(map[string]string{"a": "3"})
	require.NoError(t, err)
	_, err = set(map[string]string{"a": "4"})
	assert.ErrorIs(t, err, syscall.EROFS)
	assert.Equal(t, map[string]string{"a": "-rw-r--r-- 3"}, in(t, v.HostPath, "a"))
}

// Secrets and tokens are not on a disk.
func TestSecretsAreInMemory(t *testing.T) {
	needsMount(t)
	h := newHeld()
	h.maps["default/conf"] = &v1.ConfigMap{Data: map[string]string{"a": "1"}}
	h.secrets["default/db"] = &v1.Secret{Data: map[string][]byte{"password": []byte("p")}}
	m, dir := contentManager(t, volume.Sources{Objects: h}), filepath.Join(t.TempDir(), "u1")
	p := pod(configMapVolume("conf", "conf", false), secretVolume("db", "db"))
	cleanUp(t, m, p, dir)
	for range 2 {
		ready, err := m.SetUp(t.Context(), p, dir)
		require.NoError(t, err)
		assert.Equal(t, []string{ready["db"].HostPath}, mounts(t, dir))
		info, err := os.Stat(ready["db"].HostPath)
		require.NoError(t, err)
		assert.Equal(t, os.FileMode(0o777)|os.ModeSticky|os.ModeDir, info.Mode(), "as kubelet's")
	}
	require.NoError(t, m.TearDown(t.Context(), kruntime.RefOf(p), dir))
	assert.Empty(t, mounts(t, dir))
}

// BenchmarkChangedContent is the change of one config map that 200 pods use.
func BenchmarkChangedContent(b *testing.B) {
	h := newHeld()
	m, err := volume.New(volume.Options{Sources: volume.Sources{Objects: h}})
	require.NoError(b, err)
	dir, p, n := b.TempDir(), pod(configMapVolume("c", "conf", false)), 0
	for b.Loop() {
		n++
		h.maps["default/conf"] = &v1.ConfigMap{Data: map[string]string{"a": strconv.Itoa(n),
			"b": strings.Repeat("x", 1000)}}
		for i := range 200 {
			if _, err := m.SetUp(b.Context(), p, filepath.Join(dir, strconv.Itoa(i))); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// BenchmarkTearDownManyFiles is the end of a pod with 10,000 files from config maps.
func BenchmarkTearDownManyFiles(b *testing.B) {
	h := newHeld()
	data := map[string]string{}
	for i := range 1000 {
		data["file-"+strconv.Itoa(i)] = "x"
	}
	h.maps["default/conf"] = &v1.ConfigMap{Data: data}
	var volumes []v1.Volume
	for i := range 10 {
		volumes = append(volumes, configMapVolume("c"+strconv.Itoa(i), "conf", false))
	}
	m, err := volume.New(volume.Options{Sources: volume.Sources{Objects: h}})
	require.NoError(b, err)
	p, dir := pod(volumes...), filepath.Join(b.TempDir(), "u1")
	for b.Loop() {
		b.StopTimer()
		_, err := m.SetUp(b.Context(), p, dir)
		require.NoError(b, err)
		b.StartTimer()
		require.NoError(b, m.Remove(b.Context(), kruntime.RefOf(p), dir))
	}
}

// BenchmarkUnchangedContent is the sync of a pod with 5 volumes: 2 config maps, 1 secret, 1
// projected token and 1 emptyDir.
func BenchmarkUnchangedContent(b *testing.B) {
	h := newHeld()
	h.maps["default/conf"] = &v1.ConfigMap{Data: map[string]string{"a": "1", "b": strings.Repeat("x", 1000)}}
	h.secrets["default/db"] = &v1.Secret{Data: map[string][]byte{"password": []byte("p")}}
	m, err := volume.New(volume.Options{Sources: volume.Sources{Objects: h, Tokens: &minted{token: "t"}}})
	require.NoError(b, err)
	dir := filepath.Join(b.TempDir(), "u1")
	p := pod(configMapVolume("c1", "conf", false), configMapVolume("c2", "conf", false), secretVolume("db", "db"),
		emptyDir("tmp", v1.EmptyDirVolumeSource{}),
		v1.Volume{Name: "token", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{
			Sources: []v1.VolumeProjection{{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token"}}},
		}}})
	defer func() { assert.NoError(b, m.Remove(context.WithoutCancel(b.Context()), kruntime.RefOf(p), dir)) }()
	for b.Loop() {
		if _, err := m.SetUp(b.Context(), p, dir); err != nil {
			b.Fatal(err)
		}
	}
}
