package volumetest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kubeletkit/kubeletkit/node/volume"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// Factory makes plugins of one kind.
type Factory struct {
	// New returns the plugin as it is after a start of the agent. It is called several
	// times for one test; the plugins of a test work on the same directories, one after
	// the other.
	New func(t *testing.T) volume.Plugin
	// Volume is a volume that the plugin supports.
	Volume v1.Volume
	// Pod that the volume is for. Default: one with a container that is not defined further. The
	// tests set its name, UID and volumes, and its first container mounts the volume.
	Pod *v1.Pod
	// NoPath means that the volume has no path on the host, because the runtime mounts it.
	NoPath bool
}

// PersistentFactory makes plugins of one kind for persistent volumes.
type PersistentFactory struct {
	// New returns the plugin as it is after a start of the agent, as [Factory].New does.
	New func(t *testing.T) volume.PersistentPlugin
	// Volume is a persistent volume that the plugin supports. The pods of a test share it, as a device if its mode is
	// Block.
	Volume *v1.PersistentVolume
	// Inline is a volume in the spec of a pod that the plugin supports, in place of Volume.
	Inline *v1.Volume
	// Pod is that of [Factory].
	Pod *v1.Pod
}

// Suite runs all tests, each as a subtest with directories of its own. The plugin is
// called through a [volume.Reconciler].
func Suite(t *testing.T, f Factory) {
	suite(t, func(t *testing.T) *env {
		e := &env{T: t, factory: f}
		var plugin volume.Plugin
		e.newManager = func() (*volume.Reconciler, error) {
			plugin = f.New(t)
			e.plugin = plugin
			return volume.New(volume.Options{Plugins: []volume.Plugin{plugin}, NoDefaultPlugins: true})
		}
		e.volumeName = f.Volume.Name
		e.supports = func() bool { return plugin.Supports(&f.Volume) }
		e.takeDown = func(place volume.Place) error {
			return plugin.TearDown(t.Context(),
				volume.TearDownRequest{Pod: ref("web"), Volume: f.Volume.Name, Place: place})
		}
		return e
	})
}

// PersistentSuite is [Suite] for a plugin of persistent volumes. The pods have claims of the volume, or the volume itself
// if it is inline.
func PersistentSuite(t *testing.T, f PersistentFactory) {
	suite(t, func(t *testing.T) *env {
		e := &env{T: t, factory: Factory{Pod: f.Pod, Volume: v1.Volume{Name: "data", VolumeSource: v1.VolumeSource{
			PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}}
		if f.Inline != nil {
			e.factory.Volume = *f.Inline
		} else {
			e.device = f.Volume.Spec.VolumeMode != nil && *f.Volume.Spec.VolumeMode == v1.PersistentVolumeBlock
		}
		var plugin volume.PersistentPlugin
		e.newManager = func() (*volume.Reconciler, error) {
			plugin = f.New(t)
			e.plugin = plugin
			return volume.New(volume.Options{Persistent: []volume.PersistentPlugin{plugin},
				Sources: volume.Sources{Claims: bound{volume: f.Volume}}})
		}
		if f.Inline != nil {
			e.volumeName = f.Inline.Name
			e.supports = func() bool { return plugin.Inline(e.pod("web"), f.Inline) != nil }
		} else {
			e.volumeName = f.Volume.Name
			e.supports = func() bool { return plugin.Supports(f.Volume) }
		}
		e.takeDown = func(place volume.Place) error {
			key, err := plugin.Find(place)
			if err != nil || key == "" { // nothing needs the plugin
				return err
			}
			req := volume.UnpublishRequest{Pod: ref("web"), Key: key, Place: place}
			if err := plugin.Unpublish(t.Context(), req); err != nil {
				return err
			}
			if err := place.Unmount(); err != nil {
				return err
			}
			return plugin.Unstage(t.Context(), req)
		}
		return e
	})
}

// bound has a claim for each name, which is bound to the volume.
type bound struct {
	volume.ClaimBase
	volume *v1.PersistentVolume
}

func (b bound) Claim(_ context.Context, namespace, name string) (*v1.PersistentVolumeClaim, error) {
	claim := &v1.PersistentVolumeClaim{}
	claim.Namespace, claim.Name, claim.UID = namespace, name, types.UID(name)
	claim.Spec.VolumeName, claim.Status.Phase = b.volume.Name, v1.ClaimBound
	return claim, nil
}

func (b bound) PersistentVolume(context.Context, string) (*v1.PersistentVolume, error) {
	pv := b.volume.DeepCopy()
	pv.Spec.ClaimRef = &v1.ObjectReference{UID: "data"}
	return pv, nil
}

func suite(t *testing.T, newEnv func(t *testing.T) *env) {
	for _, c := range cases() {
		t.Run(c.name, func(t *testing.T) {
			e := newEnv(t)
			e.dir = t.TempDir()
			e.restart()
			c.run(e)
			for _, name := range []string{"web", "db"} { // so that nothing is left mounted
				assert.NoError(t, e.manager.Remove(context.WithoutCancel(t.Context()), ref(name), e.podDir(name)))
			}
		})
	}
}

type testCase struct {
	name string
	run  func(e *env)
}

func cases() []testCase {
	return []testCase{
		{"Name", (*env).name},
		{"SetUpTwice", (*env).setUpTwice},
		{"SetUpAfterRestart", (*env).setUpAfterRestart},
		{"SetUpAfterAnInterruptedOne", (*env).setUpAfterAnInterruptedOne},
		{"SetUpCancelledAtEachStep", (*env).setUpCancelledAtEachStep},
		{"DiskFullAtEachStep", (*env).diskFullAtEachStep},
		{"SetUpAfterTearDown", (*env).setUpAfterTearDown},
		{"TearDownAfterRestart", (*env).tearDownAfterRestart},
		{"TearDownTwice", (*env).tearDownTwice},
		{"TearDownCancelledAtEachStep", (*env).tearDownCancelledAtEachStep},
		{"TearDownOfNothing", (*env).tearDownOfNothing},
		{"PodsAtTheSameTime", (*env).podsAtTheSameTime},
	}
}

// env is a node of one test.
type env struct {
	*testing.T
	factory Factory
	dir     string
	plugin  interface{ Name() string }
	manager *volume.Reconciler
	// newManager makes the plugin and its manager.
	newManager func() (*volume.Reconciler, error)
	// volumeName is the name of the volume in paths.
	volumeName string
	supports   func() bool
	// device means that the pods use the volume as a device.
	device bool
	// takeDown takes the volume of pod "web" down, without the manager.
	takeDown func(place volume.Place) error
}

// restart forgets all that is in memory.
func (e *env) restart() {
	e.Helper()
	var err error
	e.manager, err = e.newManager()
	require.NoError(e, err)
}

func (e *env) podDir(pod string) string { return filepath.Join(e.dir, pod) }

// ref is all that is known of a pod whose spec is gone.
func ref(pod string) runtime.PodRef { return runtime.PodRef{UID: types.UID("uid-" + pod)} }

func (e *env) pod(name string) *v1.Pod {
	pod := &v1.Pod{}
	if e.factory.Pod != nil {
		pod = e.factory.Pod.DeepCopy()
	}
	pod.Name, pod.Namespace, pod.UID = name, "default", ref(name).UID
	pod.Spec.Volumes = []v1.Volume{e.factory.Volume}
	if len(pod.Spec.Containers) == 0 {
		pod.Spec.Containers = []v1.Container{{Name: "main"}}
	}
	main := &pod.Spec.Containers[0]
	if e.device {
		main.VolumeDevices = append(main.VolumeDevices, v1.VolumeDevice{Name: e.factory.Volume.Name, DevicePath: "/dev/volume"})
		return pod
	}
	main.VolumeMounts = append(main.VolumeMounts, v1.VolumeMount{Name: e.factory.Volume.Name, MountPath: "/volume"})
	return pod
}

// setUp sets the volume up for the pod.
func (e *env) setUp(pod string) runtime.Volume {
	e.Helper()
	ready, err := e.manager.SetUp(e.Context(), e.pod(pod), e.podDir(pod))
	require.NoError(e, err)
	v := ready[e.factory.Volume.Name]
	if e.factory.NoPath {
		require.Contains(e, ready, e.factory.Volume.Name)
		require.Empty(e, v.HostPath)
	} else {
		require.True(e, filepath.IsAbs(v.HostPath), "HostPath %q: must be an absolute path", v.HostPath)
	}
	return v
}

// put writes a file into the volume, and returns its path; nothing where files cannot
// be put.
func (e *env) put(v runtime.Volume) string {
	e.Helper()
	if info, err := os.Stat(v.HostPath); err != nil || !info.IsDir() || v.ReadOnly {
		return ""
	}
	file := filepath.Join(v.HostPath, "of-the-pod")
	err := os.WriteFile(file, []byte("data"), 0o600)
	if !errors.Is(err, syscall.EINVAL) { // a file on huge pages can only be mapped; it is there
		require.NoError(e, err)
	}
	return file
}

func (e *env) isKept(file string) {
	e.Helper()
	if file != "" {
		assert.FileExists(e, file, "what a pod has written stays")
	}
}

// tearDown takes the pod's volumes down, without its spec.
func (e *env) tearDown(pod string) {
	e.Helper()
	require.NoError(e, e.manager.TearDown(e.Context(), ref(pod), e.podDir(pod)))
	p := e.place(pod)
	assert.NoDirExists(e, p.Dir)
	assert.NoDirExists(e, p.StateDir)
}

// place is where the manager has the pod's volume.
func (e *env) place(pod string) volume.Place {
	return volume.PlaceOf(e.podDir(pod), e.plugin.Name(), e.volumeName)
}

func (e *env) name() {
	assert.Empty(e, validation.IsQualifiedName(e.plugin.Name()))
	name := e.plugin.Name()
	e.restart()
	assert.Equal(e, name, e.plugin.Name(), "volumes are found by it after a restart")
	assert.True(e, e.supports())
}

func (e *env) setUpTwice() {
	v := e.setUp("web")
	file := e.put(v)
	assert.Equal(e, v, e.setUp("web"))
	e.isKept(file)
}

func (e *env) setUpAfterRestart() {
	v := e.setUp("web")
	file := e.put(v)
	e.restart()
	assert.Equal(e, v, e.setUp("web"))
	e.isKept(file)
}

// setUpAfterAnInterruptedOne ends the context of the first SetUp, which then may fail
// or not.
func (e *env) setUpAfterAnInterruptedOne() {
	ctx, cancel := context.WithCancel(e.Context())
	cancel()
	_, _ = e.manager.SetUp(ctx, e.pod("web"), e.podDir("web"))
	e.restart()
	e.setUp("web")
	e.tearDown("web")
}

// maxSteps bounds the checks of a context that are counted.
const maxSteps = 100

// setUpCancelledAtEachStep ends the context of SetUp when it is looked at for the first time,
// the second and so on. What SetUp has done until then must be completed, or taken down, by an
// agent that knows nothing of it.
func (e *env) setUpCancelledAtEachStep() {
	for steps := range 2 * maxSteps {
		left, complete := int64(steps/2), steps%2 == 0
		ctx := &countdown{Context: e.Context(), done: make(chan struct{})}
		ctx.left.Store(left)
		_, err := e.manager.SetUp(ctx, e.pod("web"), e.podDir("web"))
		e.restart()
		if complete {
			e.setUp("web")
		}
		e.tearDown("web")
		e.restart()
		if err == nil && ctx.left.Load() >= 0 {
			return // it was not looked at that often
		}
	}
}

// diskFullAtEachStep has SetUp fail with the first file that it makes, with the second and so on:
// the disk has room for no more. When there is room again, SetUp completes what is there, or
// TearDown removes it. It needs to mount.
func (e *env) diskFullAtEachStep() {
	top := e.dir
	defer func() {
		_ = unmountSmall(filepath.Join(top, "small")) // if a test has failed
		e.dir = top
	}()
	for steps := range 2 * enoughFiles {
		files, complete := steps/2, steps%2 == 0
		e.dir = filepath.Join(top, "small")
		require.NoError(e, os.MkdirAll(e.dir, 0o755))
		if err := mountSmall(e.dir, files); err != nil {
			e.Skipf("mounting a small file system: %v", err)
		}
		_, err := e.manager.SetUp(e.Context(), e.pod("web"), e.podDir("web"))
		assert.NoError(e, enlarge(e.dir))
		e.restart()
		if complete {
			e.setUp("web")
		}
		e.tearDown("web")
		e.restart()
		require.NoError(e, unmountSmall(e.dir), "a file of the volume is open or something is mounted")
		if err == nil {
			return // there was room for all
		}
	}
}

// countdown is a context that ends when it has been looked at a number of times.
type countdown struct {
	context.Context
	left atomic.Int64
	once sync.Once
	done chan struct{}
}

func (c *countdown) Done() <-chan struct{} {
	_ = c.Err()
	return c.done
}

func (c *countdown) Err() error {
	if c.left.Add(-1) >= 0 {
		return nil
	}
	c.once.Do(func() { close(c.done) })
	return context.Canceled
}

func (e *env) setUpAfterTearDown() {
	v := e.setUp("web")
	e.tearDown("web")
	assert.Equal(e, v, e.setUp("web"))
	e.tearDown("web")
}

func (e *env) tearDownAfterRestart() {
	e.put(e.setUp("web"))
	e.restart()
	e.tearDown("web")
	e.restart()
	e.tearDown("web")
}

// tearDownTwice is a crash after TearDown and before its directories were removed.
func (e *env) tearDownTwice() {
	e.setUp("web")
	require.NoError(e, e.takeDown(e.place("web")))
	require.NoError(e, e.takeDown(e.place("web")))
	e.restart()
	e.tearDown("web")
}

// tearDownCancelledAtEachStep ends the context of TearDown when it is looked at for the first time,
// the second and so on. The rest is taken down by an agent that knows nothing of it, after a
// SetUp or at once.
func (e *env) tearDownCancelledAtEachStep() {
	for steps := range 2 * maxSteps {
		left, again := int64(steps/2), steps%2 == 0
		e.put(e.setUp("web"))
		ctx := &countdown{Context: e.Context(), done: make(chan struct{})}
		ctx.left.Store(left)
		err := e.manager.TearDown(ctx, ref("web"), e.podDir("web"))
		e.restart()
		if again {
			e.setUp("web")
		}
		e.tearDown("web")
		e.restart()
		if err == nil && ctx.left.Load() >= 0 {
			return // it was not looked at that often
		}
	}
}

// tearDownOfNothing is a crash before SetUp has done anything.
func (e *env) tearDownOfNothing() {
	p := e.place("web")
	require.NoError(e, os.MkdirAll(p.StateDir, 0o750))
	require.NoError(e, os.MkdirAll(filepath.Dir(p.Dir), 0o750))
	e.tearDown("web")
}

func (e *env) podsAtTheSameTime() {
	var wg sync.WaitGroup
	for _, pod := range []string{"web", "db"} {
		wg.Go(func() {
			_, err := e.manager.SetUp(e.Context(), e.pod(pod), e.podDir(pod))
			assert.NoError(e, err)
		})
	}
	wg.Wait()
	v := e.setUp("db")
	file := e.put(v)
	e.tearDown("web")
	e.isKept(file)
	assert.Equal(e, v, e.setUp("db"), "the end of one pod does not affect another")
	e.tearDown("db")
}
