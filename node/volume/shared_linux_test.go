package volume_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/testenv"
	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/node/volume"
	"github.com/kubeletkit/kubeletkit/node/volume/volumetest"
	kruntime "github.com/kubeletkit/kubeletkit/runtime"
)

// shared is a plugin for volumes that are staged once for the node and published to each pod, as
// those of a CSI driver are. Its own directory has the stage of each volume.
type shared struct {
	volume.PersistentBase
	dir  string
	bind bool // else a stage is a directory, and is published by a link
	// before is called before each step.
	before func(step string) error

	mu     sync.Mutex
	staged []string // the volumes that this agent has staged
}

func (*shared) Name() string { return "example.com/shared" }

func (*shared) Supports(pv *v1.PersistentVolume) bool { return pv.Spec.CSI != nil }

// Inline supports volumes of the type flexVolume.
func (*shared) Inline(_ *v1.Pod, v *v1.Volume) *v1.PersistentVolume {
	if v.FlexVolume == nil {
		return nil
	}
	pv := &v1.PersistentVolume{}
	pv.Name = v.Name
	pv.Spec.CSI = &v1.CSIPersistentVolumeSource{Driver: v.FlexVolume.Driver, VolumeHandle: v.FlexVolume.Options["volume"]}
	return pv
}

func (*shared) Key(pv *v1.PersistentVolume) string { return pv.Spec.CSI.VolumeHandle }

func (s *shared) stage(volume string) string { return filepath.Join(s.dir, volume) }

// record is the file with the key of the volume.
func record(place volume.Place) string { return filepath.Join(place.StateDir, "shared") }

func (*shared) Find(place volume.Place) (string, error) {
	key, err := os.ReadFile(record(place))
	return string(key), absent(err)
}

func (*shared) Published(place volume.Place) (*volume.Published, error) {
	if info, err := os.Stat(place.Dir); err != nil || !info.IsDir() {
		return nil, absent(err)
	}
	return &volume.Published{Volume: kruntime.Volume{HostPath: place.Dir}}, nil
}

// steps does steps until one fails or ctx ends.
func (s *shared) steps(ctx context.Context, steps ...any) error {
	for i := 0; i < len(steps); i += 2 {
		if err := ctx.Err(); err != nil {
			return err
		}
		if s.before != nil {
			if err := s.before(steps[i].(string)); err != nil {
				return err
			}
		}
		if err := steps[i+1].(func() error)(); err != nil {
			return err
		}
	}
	return nil
}

func (s *shared) Stage(ctx context.Context, req volume.PersistentRequest) error {
	key := s.Key(req.Volume)
	return s.steps(ctx,
		"record the volume", func() error { return replaceFile(record(req.Place), key) },
		"make the stage", func() error { return os.MkdirAll(s.stage(key), 0o700) },
		"stage", func() error { return s.mountStage(key) },
	)
}

func (s *shared) mountStage(name string) error {
	mounted, err := volume.Place{Dir: s.stage(name)}.Mounted()
	if err != nil || mounted || !s.bind {
		return err
	}
	s.mu.Lock()
	s.staged = append(s.staged, name)
	s.mu.Unlock()
	return tmpfs(s.stage(name))
}

func (s *shared) Publish(ctx context.Context, req volume.PersistentRequest) (volume.Published, error) {
	err := s.steps(ctx, "publish", func() error { return s.publish(s.Key(req.Volume), req.Place) })
	return volume.Published{Volume: kruntime.Volume{HostPath: req.Dir}}, err
}

func (s *shared) publish(name string, place volume.Place) error {
	if !s.bind {
		err := os.Symlink(s.stage(name), place.Dir)
		if errors.Is(err, os.ErrExist) {
			return nil
		}
		return err
	}
	mounted, err := place.Mounted()
	if err != nil || mounted {
		return err
	}
	if err := os.MkdirAll(place.Dir, 0o700); err != nil {
		return err
	}
	return syscall.Mount(s.stage(name), place.Dir, "", syscall.MS_BIND, "")
}

func (s *shared) Unpublish(ctx context.Context, req volume.UnpublishRequest) error {
	return s.steps(ctx,
		"unpublish", req.Unmount,
		"remove the link", func() error { return absent(os.Remove(req.Dir)) },
	)
}

func (s *shared) Unstage(ctx context.Context, req volume.UnpublishRequest) error {
	return s.steps(ctx,
		"unstage", func() error { return volume.Place{Dir: s.stage(req.Key)}.Unmount() },
		"remove the stage", func() error { return os.RemoveAll(s.stage(req.Key)) },
	)
}

// replaceFile writes a file in one step.
func replaceFile(file, content string) error {
	if err := os.WriteFile(file+".new", []byte(content), 0o600); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

// absent is nil if err says that nothing is there.
func absent(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

func sharedPod(name string) *v1.Pod {
	return testpod.New(name, testpod.Namespace("default"), testpod.UID(types.UID("uid-"+name)),
		testpod.Containers("main"), testpod.Volumes(sharedVolume))
}

var sharedVolume = v1.Volume{Name: "data", VolumeSource: v1.VolumeSource{FlexVolume: &v1.FlexVolumeSource{
	Driver: "example.com/shared", Options: map[string]string{"volume": "disk-1"},
}}}

// forEachPublication runs a test of volumes that are linked, and of volumes that are mounted.
func forEachPublication(t *testing.T, test func(t *testing.T, bind bool)) {
	t.Run("linked", func(t *testing.T) { test(t, false) })
	t.Run("bound", func(t *testing.T) {
		needsMount(t)
		test(t, true)
	})
}

func TestSharedVolumesConform(t *testing.T) {
	dir, bind := t.TempDir(), os.Getuid() == 0
	pv := &v1.PersistentVolume{}
	pv.Name, pv.Spec.CSI = "pv-1", &v1.CSIPersistentVolumeSource{Driver: "example.com", VolumeHandle: "disk-1"}
	volumetest.PersistentSuite(t, volumetest.PersistentFactory{
		New: func(*testing.T) volume.PersistentPlugin { return &shared{dir: dir, bind: bind} }, Volume: pv})
	assertEmptyDir(t, dir)
}

func assertEmptyDir(t *testing.T, dir string) {
	t.Helper()
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, left)
}

// A volume that pods share is staged for the first of them, by whatever agent, and goes with the last.
func TestSharedVolume(t *testing.T) {
	forEachPublication(t, func(t *testing.T, bind bool) {
		dir, pods := t.TempDir(), t.TempDir()
		agent := func() (*volume.Reconciler, *shared) {
			s := &shared{dir: dir, bind: bind}
			return managerOf(t, s), s
		}
		setUp := func(m *volume.Reconciler, name string) string {
			t.Helper()
			ready, err := m.SetUp(t.Context(), sharedPod(name), filepath.Join(pods, name))
			require.NoError(t, err)
			return filepath.Join(ready["data"].HostPath, "file")
		}
		remove := func(m *volume.Reconciler, name string) {
			t.Helper()
			require.NoError(t, m.Remove(t.Context(), kruntime.PodRef{UID: types.UID("uid-" + name)},
				filepath.Join(pods, name)))
			assert.NoDirExists(t, filepath.Join(pods, name))
		}
		first, s := agent()
		web := setUp(first, "web")
		require.NoError(t, os.WriteFile(web, []byte("shared"), 0o600))
		if bind {
			assert.Equal(t, []string{"disk-1"}, s.staged)
		}

		second, s := agent()
		for _, name := range []string{"web", "db", "web", "db"} {
			assert.FileExists(t, setUp(second, name))
		}
		assert.Empty(t, s.staged, "it was staged before the restart")
		remove(second, "web")
		remove(second, "web")

		third, _ := agent()
		assert.FileExists(t, setUp(third, "db"), "another pod uses it")
		remove(third, "db")
		assertEmptyDir(t, dir)
		assert.Empty(t, append(mounts(t, pods), mounts(t, dir)...))
	})
}

// A pod whose volume cannot be unstaged need not wait for that: the volume is published for no pod. The next pod stages
// it again, and keeps it when what the first has left is removed.
func TestSharedVolumeThatStaysStaged(t *testing.T) {
	forEachPublication(t, func(t *testing.T, bind bool) {
		dir, pods := t.TempDir(), t.TempDir()
		fail := ""
		failed := errors.New("failed")
		m := managerOf(t, &shared{dir: dir, bind: bind, before: func(step string) error {
			if step == fail {
				return failed
			}
			return nil
		}})
		setUp := func(name string) {
			t.Helper()
			_, err := m.SetUp(t.Context(), sharedPod(name), filepath.Join(pods, name))
			require.NoError(t, err)
		}
		tearDown := func(name string) error {
			return m.TearDown(t.Context(), kruntime.PodRef{UID: types.UID("uid-" + name)}, filepath.Join(pods, name))
		}
		setUp("web")
		fail = "unpublish"
		err := tearDown("web")
		require.ErrorIs(t, err, failed)
		assert.NotErrorIs(t, err, volume.ErrStaged)
		fail = "unstage"
		err = tearDown("web")
		require.ErrorIs(t, err, failed)
		assert.ErrorIs(t, err, volume.ErrStaged)
		assert.ErrorContains(t, err, "UnmountDevice failed: failed")
		assert.Empty(t, mounts(t, pods))
		assert.DirExists(t, filepath.Join(dir, "disk-1"))

		setUp("db")
		require.NoError(t, tearDown("web"), "pod db has the volume")
		assert.DirExists(t, filepath.Join(dir, "disk-1"))
		assert.ErrorIs(t, tearDown("db"), volume.ErrStaged)
		fail = ""
		// Another agent finds on disk what is to be unstaged.
		require.NoError(t, managerOf(t, &shared{dir: dir, bind: bind}).Remove(t.Context(),
			kruntime.PodRef{UID: "uid-db"}, filepath.Join(pods, "db")))
		assertEmptyDir(t, dir)
		assert.Empty(t, append(mounts(t, pods), mounts(t, dir)...))
	})
}

// The agent is killed before each step while one pod comes and goes beside another: between stage and
// publication, too. The other pod keeps the volume, and nothing is left of it in the end.
func TestSharedVolumeKilledAtEachStep(t *testing.T) {
	killed := errors.New("killed")
	forEachPublication(t, func(t *testing.T, bind bool) {
		dir, pods := testenv.MemoryDir(t), testenv.MemoryDir(t)
		for _, complete := range []bool{false, true} {
			for n := 1; ; n++ {
				left, last := n, ""
				doomed := managerOf(t, &shared{dir: dir, bind: bind, before: func(step string) error {
					if left--; left == 0 {
						last = step
					}
					if left <= 0 {
						return killed
					}
					return nil
				}})
				file, err := sharedLife(t, doomed, pods)
				done := err == nil
				if !done {
					require.ErrorIs(t, err, killed)
				}
				next := managerOf(t, &shared{dir: dir, bind: bind})
				if complete {
					for _, name := range []string{"web", "db"} {
						ready, err := next.SetUp(t.Context(), sharedPod(name), filepath.Join(pods, name))
						require.NoError(t, err)
						if file != "" {
							assert.FileExists(t, filepath.Join(ready["data"].HostPath, "file"))
						}
					}
				}
				require.NoError(t, next.Remove(t.Context(), kruntime.PodRef{UID: "uid-db"}, filepath.Join(pods, "db")))
				if file != "" {
					assert.FileExists(t, file, "pod web runs")
				}
				require.NoError(t, next.Remove(t.Context(), kruntime.PodRef{UID: "uid-web"},
					filepath.Join(pods, "web")))
				assertEmptyDir(t, dir)
				assertEmptyDir(t, pods)
				assert.Empty(t, append(mounts(t, pods), mounts(t, dir)...))
				if t.Failed() {
					t.Fatalf("killed before step %d: %s", n, last)
				}
				if done {
					break
				}
			}
		}
	})
}

// sharedLife sets pod web up, which writes a file, then pod db, and removes that.
func sharedLife(t *testing.T, m *volume.Reconciler, pods string) (file string, err error) {
	ready, err := m.SetUp(t.Context(), sharedPod("web"), filepath.Join(pods, "web"))
	if err != nil {
		return "", err
	}
	file = filepath.Join(ready["data"].HostPath, "file")
	if err := os.WriteFile(file, []byte("shared"), 0o600); err != nil {
		return "", err
	}
	if _, err := m.SetUp(t.Context(), sharedPod("db"), filepath.Join(pods, "db")); err != nil {
		return file, err
	}
	return file, m.Remove(t.Context(), kruntime.PodRef{UID: "uid-db"}, filepath.Join(pods, "db"))
}
