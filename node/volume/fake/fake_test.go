package fake_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/node/volume"
	"github.com/kubeletkit/kubeletkit/node/volume/fake"
	"github.com/kubeletkit/kubeletkit/node/volume/volumetest"
	"github.com/kubeletkit/kubeletkit/runtime"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var _ volume.Manager = (*fake.Volumes)(nil)

func makePod(name string, volumes ...v1.Volume) *v1.Pod {
	return testpod.New(name, testpod.Containers("main"), testpod.Volumes(volumes...))
}

func nfs(name string) v1.Volume {
	return v1.Volume{Name: name,
		VolumeSource: v1.VolumeSource{NFS: &v1.NFSVolumeSource{Server: "storage", Path: "/" + name}}}
}

func TestPluginWithTheManager(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := fake.NewPlugin("example.com/disk", func(v *v1.Volume) bool { return v.NFS != nil })
		rest := fake.NewPlugin("example.com/rest", nil)
		m, err := volume.New(volume.Options{Plugins: []volume.Plugin{disk, rest}, NoDefaultPlugins: true})
		require.NoError(t, err)
		dir := t.TempDir()
		web := makePod("web", nfs("data"), v1.Volume{Name: "tmp"})
		unreachable := errors.New("no route to host")
		disk.Fail(fake.SetUp, web.UID, 1, unreachable)
		_, err = m.SetUp(t.Context(), web, dir)
		require.ErrorIs(t, err, unreachable)
		got, err := m.SetUp(t.Context(), web, dir)
		require.NoError(t, err)
		assert.Equal(t, map[string]runtime.Volume{
			"data": {HostPath: filepath.Join(dir, "volumes", "example.com~disk", "data")},
			"tmp":  {HostPath: filepath.Join(dir, "volumes", "example.com~rest", "tmp")},
		}, got)
		assert.Equal(t, []string{"SetUp default/web data", "SetUp default/web data"}, disk.Transcript(web.UID))
		assert.Equal(t, []string{"uid-web/data"}, disk.Up())

		disk.Hold(fake.SetUp, "")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err = m.SetUp(ctx, web, dir)
		require.ErrorIs(t, err, context.DeadlineExceeded)

		disk.Fail(fake.TearDown, web.UID, 1, unreachable)
		require.ErrorIs(t, m.TearDown(t.Context(), runtime.PodRef{UID: web.UID}, dir), unreachable)
		assert.Equal(t, []string{"uid-web/data"}, disk.Up())
		assert.Empty(t, rest.Up())
		require.NoError(t, m.TearDown(t.Context(), runtime.PodRef{UID: web.UID}, dir))
		assert.Empty(t, disk.Up())
	})
}

func TestPluginConforms(t *testing.T) {
	volumetest.Suite(t, volumetest.Factory{
		New:    func(*testing.T) volume.Plugin { return fake.NewPlugin("example.com/disk", nil) },
		Volume: nfs("data"),
	})
}

func TestVolumes(t *testing.T) {
	m, ctx := fake.NewVolumes(), t.Context()
	web, db := makePod("web", nfs("data")), makePod("db")
	got, err := m.SetUp(ctx, web, "dir")
	require.NoError(t, err)
	assert.Equal(t, runtime.Volume{HostPath: filepath.Join("dir", "volumes", "fake", "data")}, got["data"])
	_, err = m.SetUp(ctx, web, "dir")
	require.NoError(t, err)
	busy := errors.New("device busy")
	m.Fail(fake.SetUp, db.UID, 1, busy)
	_, err = m.SetUp(ctx, db, "dir")
	require.ErrorIs(t, err, busy)
	assert.Equal(t, []types.UID{"uid-web"}, m.Up(), "once, and only what has succeeded")

	message, err := m.Exceeded(ctx, web, "dir")
	require.NoError(t, err)
	assert.Empty(t, message)
	m.SetExceeded(web.UID, "too much")
	message, err = m.Exceeded(ctx, web, "dir")
	require.NoError(t, err)
	assert.Equal(t, "too much", message)

	sub := runtime.SubPath{Pod: runtime.RefOf(web), Container: "main", Index: 2, VolumeName: "data",
		Volume: got["data"], Path: "a/b"}
	path, err := m.SubPath(ctx, sub)
	require.NoError(t, err)
	assert.Equal(t, filepath.Join("dir", "volumes", "fake", "data", "a", "b"), path)
	m.Fail(fake.SubPath, "", -1, busy)
	_, err = m.SubPath(ctx, sub)
	require.ErrorIs(t, err, busy)

	m.Fail(fake.TearDown, web.UID, 1, busy)
	require.ErrorIs(t, m.TearDown(ctx, runtime.RefOf(web), "dir"), busy)
	assert.Len(t, m.Up(), 1)
	require.NoError(t, m.TearDown(ctx, runtime.RefOf(web), "dir"))
	assert.Empty(t, m.Up())
	require.NoError(t, m.Remove(ctx, runtime.PodRef{UID: "uid-old"}, "dir"))
	assert.Equal(t, []string{
		"SetUp default/web", "SetUp default/web", "SetUp default/db", "Exceeded default/web", "Exceeded default/web",
		"SubPath default/web main[2] data/a/b", "SubPath default/web main[2] data/a/b", "TearDown default/web",
		"TearDown default/web", "Remove uid-old",
	}, m.Transcript(""))
}

func Example() {
	ctx := context.Background()
	mounts, web := fake.NewVolumes(), makePod("web", nfs("data"))
	mounts.Fail(fake.SetUp, web.UID, 1, errors.New("no route to host"))
	for range 2 { // what a podsync.Syncer does
		_, err := mounts.SetUp(ctx, web, "/pods/web")
		fmt.Println("set up:", mounts.Up(), err)
	}
	fmt.Println(mounts.TearDown(ctx, runtime.RefOf(web), "/pods/web"), mounts.Up())
	// Output:
	// set up: [] no route to host
	// set up: [uid-web] <nil>
	// <nil> []
}
