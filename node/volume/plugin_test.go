//go:build unix

package volume_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/node/volume"
	"github.com/kubeletkit/kubeletkit/node/volume/volumetest"
	kruntime "github.com/kubeletkit/kubeletkit/runtime"
)

// pool is what disks are attached from: it outlives plugins.
type pool struct {
	mu       sync.Mutex
	attached []string
	log      []string
}

func (p *pool) note(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.log = append(p.log, fmt.Sprintf(format, args...))
}

func (p *pool) take() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	log := p.log
	p.log = nil
	return log
}

// disk is a plugin that attaches a disk of the pool, notes which in its state, and
// makes it a directory.
type disk struct {
	pool *pool
	name string
	// fail is called at each step; its error ends the call.
	fail func(step string) error
	// mount mounts something at the directory; nil makes it.
	mount func(dir string) error
}

func (d *disk) Name() string { return d.name }

func (d *disk) Supports(v *v1.Volume) bool { return v.ISCSI != nil }

func (d *disk) step(name string) error {
	if d.fail == nil {
		return nil
	}
	return d.fail(name)
}

func (d *disk) SetUp(ctx context.Context, req volume.SetUpRequest) (kruntime.Volume, error) {
	if err := ctx.Err(); err != nil {
		return kruntime.Volume{}, err
	}
	id := string(req.Pod.UID) + "-" + req.Volume.Name
	if err := os.WriteFile(filepath.Join(req.StateDir, "disk"), []byte(id), 0o600); err != nil {
		return kruntime.Volume{}, err
	}
	if err := d.step("attach"); err != nil {
		return kruntime.Volume{}, err
	}
	d.pool.mu.Lock()
	if !slices.Contains(d.pool.attached, id) {
		d.pool.attached = append(d.pool.attached, id)
	}
	d.pool.mu.Unlock()
	mounted, err := req.Mounted()
	if err != nil {
		return kruntime.Volume{}, err
	}
	d.pool.note("set up %s, mounted: %t", req.Volume.Name, mounted)
	if !mounted {
		if err := os.MkdirAll(req.Dir, 0o755); err != nil {
			return kruntime.Volume{}, err
		}
		if d.mount != nil {
			if err := d.mount(req.Dir); err != nil {
				return kruntime.Volume{}, err
			}
		}
	}
	return kruntime.Volume{HostPath: req.Dir}, d.step("mounted")
}

func (d *disk) TearDown(_ context.Context, req volume.TearDownRequest) error {
	if err := d.step("detach " + req.Volume); err != nil {
		return err
	}
	id, err := os.ReadFile(filepath.Join(req.StateDir, "disk"))
	if errors.Is(err, os.ErrNotExist) {
		return nil // SetUp has not come to attach it
	}
	if err != nil {
		return err
	}
	if err := req.Unmount(); err != nil {
		return err
	}
	d.pool.mu.Lock()
	d.pool.attached = slices.DeleteFunc(d.pool.attached, func(a string) bool { return a == string(id) })
	d.pool.mu.Unlock()
	d.pool.note("tear down %s of %s", req.Volume, req.Pod.UID)
	return nil
}

func iscsi(name string) v1.Volume {
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{ISCSI: &v1.ISCSIVolumeSource{}}}
}

func managerWith(t *testing.T, plugins ...volume.Plugin) *volume.Reconciler {
	t.Helper()
	m, err := volume.New(volume.Options{Plugins: plugins})
	require.NoError(t, err)
	return m
}

func TestPluginConforms(t *testing.T) {
	p := &pool{}
	volumetest.Suite(t, volumetest.Factory{New: func(*testing.T) volume.Plugin { return &disk{pool: p, name: "disk"} },
		Volume: iscsi("v")})
	assert.Empty(t, p.attached)
}

// A plugin is called to take down what it has set up though the agent was restarted
// and the spec of the pod is gone.
func TestTearDownFromDisk(t *testing.T) {
	p, dir := &pool{}, t.TempDir()
	web := pod(iscsi("a"), iscsi("b"), emptyDir("scratch", v1.EmptyDirVolumeSource{}))
	ready, err := managerWith(t, &disk{pool: p, name: "example.com/disk"}).SetUp(t.Context(), web, dir)
	require.NoError(t, err)
	assert.Equal(t, filepath.Join(dir, "volumes", "example.com~disk", "a"), ready["a"].HostPath)
	assert.FileExists(t, filepath.Join(dir, "plugins", "example.com~disk", "a", "disk"))
	assert.NoDirExists(t, filepath.Join(dir, "plugins", "kubernetes.io~empty-dir"), "needs no state")
	assert.Equal(t, []string{"u1-a", "u1-b"}, p.attached)
	p.take()

	m := managerWith(t, &disk{pool: p, name: "example.com/disk"})
	require.NoError(t, m.Remove(t.Context(), kruntime.PodRef{UID: "u1"}, dir))
	assert.Equal(t, []string{"tear down a of u1", "tear down b of u1"}, p.take())
	assert.Empty(t, p.attached)
	assert.NoDirExists(t, dir)
	require.NoError(t, m.Remove(t.Context(), kruntime.PodRef{UID: "u1"}, dir))
	assert.Empty(t, p.take(), "there is nothing any more")
}

// SetUp may end anywhere; what it has begun is taken down.
func TestTearDownAfterAFailedSetUp(t *testing.T) {
	lost := errors.New("no route to host")
	for name, fail := range map[string]func(step string) error{
		"before it is attached": func(step string) error {
			if step == "attach" {
				return lost
			}
			return nil
		},
		"after it is mounted": func(step string) error {
			if step == "mounted" {
				return lost
			}
			return nil
		},
		"panic": func(step string) error {
			if step == "attach" {
				panic(lost)
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			p, dir := &pool{}, t.TempDir()
			d := &disk{pool: p, name: "disk", fail: fail}
			_, err := managerWith(t, d).SetUp(t.Context(), pod(iscsi("a")), dir)
			require.ErrorIs(t, err, lost)
			require.ErrorContains(t, err, `volume "a" of pod default/web(u1): `)
			p.take()
			require.NoError(t, managerWith(t, d).TearDown(t.Context(), kruntime.PodRef{UID: "u1"}, dir))
			assert.Equal(t, []string{"tear down a of u1"}, p.take())
			assert.Empty(t, p.attached)
			assert.NoDirExists(t, filepath.Join(dir, "plugins"))
		})
	}
}

// A volume that cannot be taken down stays as it is. The others go.
func TestTearDownFailsForOne(t *testing.T) {
	p, dir, busy := &pool{}, t.TempDir(), errors.New("device busy")
	d := &disk{pool: p, name: "disk"}
	m := managerWith(t, d)
	web := pod(iscsi("a"), iscsi("b"), emptyDir("scratch", v1.EmptyDirVolumeSource{}))
	ready, err := m.SetUp(t.Context(), web, dir)
	require.NoError(t, err)
	d.fail = func(step string) error {
		if step == "detach a" {
			return busy
		}
		return nil
	}
	for range 2 {
		err = m.Remove(t.Context(), kruntime.RefOf(web), dir)
		require.ErrorIs(t, err, busy)
		require.ErrorContains(t, err, `volume "a" of pod default/web(u1): device busy`)
		assert.Equal(t, []string{"u1-a"}, p.attached)
		assert.DirExists(t, ready["a"].HostPath)
		assert.FileExists(t, filepath.Join(dir, "plugins", "disk", "a", "disk"))
		assert.NoDirExists(t, ready["b"].HostPath)
		assert.NoDirExists(t, filepath.Join(dir, "plugins", "disk", "b"))
		assert.NoDirExists(t, ready["scratch"].HostPath)
	}
	d.fail = nil
	require.NoError(t, m.Remove(t.Context(), kruntime.RefOf(web), dir))
	assert.Empty(t, p.attached)
	assert.NoDirExists(t, dir)
}

func TestAPluginThatIsNotConfiguredAnyMore(t *testing.T) {
	p, dir := &pool{}, t.TempDir()
	web := pod(iscsi("a"))
	_, err := managerWith(t, &disk{pool: p, name: "disk"}).SetUp(t.Context(), web, dir)
	require.NoError(t, err)
	require.NoError(t, newManager(t).Remove(t.Context(), kruntime.RefOf(web), dir))
	assert.NoDirExists(t, dir)
}

// ours is a plugin that takes emptyDirs away from the default one.
type ours struct{ volume.EmptyDir }

func (ours) Name() string { return "example.com/scratch" }

func TestPluginsAreTriedBeforeTheDefaultOnes(t *testing.T) {
	m, dir := managerWith(t, ours{}), t.TempDir()
	web := pod(emptyDir("v", v1.EmptyDirVolumeSource{SizeLimit: ptr.To(resource.MustParse("64Ki"))}),
		hostPath("h", dir, v1.HostPathDirectory))
	ready, err := m.SetUp(t.Context(), web, dir)
	require.NoError(t, err)
	assert.Equal(t, filepath.Join(dir, "volumes", "example.com~scratch", "v"), ready["v"].HostPath)
	assert.Equal(t, dir, ready["h"].HostPath, "the default ones are there, too")
	require.NoError(t, os.WriteFile(filepath.Join(ready["v"].HostPath, "f"), make([]byte, 128<<10), 0o600))
	message, err := m.Exceeded(t.Context(), web, dir)
	require.NoError(t, err)
	assert.Equal(t, `Usage of EmptyDir volume "v" exceeds the limit "64Ki". `, message, "wherever it is")

	m, err = volume.New(volume.Options{NoDefaultPlugins: true})
	require.NoError(t, err)
	_, err = m.SetUp(t.Context(), web, dir)
	require.ErrorIs(t, err, volume.ErrUnsupported)
	message, err = m.Exceeded(t.Context(), web, dir)
	require.NoError(t, err)
	assert.Empty(t, message)
}

func TestNewRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		plugins []volume.Plugin
		want    []string
	}{
		"all at once": {[]volume.Plugin{nil, &disk{name: "a/b/c"}, &disk{name: ".."}, &disk{name: "x"}, &disk{name: "x"}},
			[]string{"Options.Plugins[0] is nil", `plugin name "a/b/c"`, `plugin name ".."`,
				"two plugins are named x"}},
		"a name of ours": {[]volume.Plugin{&disk{name: "kubernetes.io/empty-dir"}}, []string{"two plugins are named kubernetes.io/empty-dir", "Options.NoDefaultPlugins"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := volume.New(volume.Options{Plugins: tc.plugins})
			for _, want := range tc.want {
				assert.ErrorContains(t, err, want)
			}
		})
	}
}

// tally keeps what is measured.
type tally struct{ lines []string }

func (m *tally) Measure(v kruntime.Measurement) {
	switch v := v.(type) {
	case volume.SetUpCall:
		m.lines = append(m.lines, fmt.Sprintf("set up %s: %v", v.Plugin, v.Err))
	case volume.TearDownCall:
		m.lines = append(m.lines, fmt.Sprintf("tear down %s: %v", v.Plugin, v.Err))
	}
}

func TestMetrics(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		counts := &tally{}
		d := &disk{pool: &pool{}, name: "disk"}
		m, err := volume.New(volume.Options{Plugins: []volume.Plugin{d}, Observer: kruntime.Observer{NonBlocking: true,
			Measure: counts.Measure}})
		require.NoError(t, err)
		web := pod(iscsi("a"), emptyDir("b", v1.EmptyDirVolumeSource{}))
		_, err = m.SetUp(t.Context(), web, dir)
		require.NoError(t, err)
		d.fail = func(step string) error { return errors.New(step) }
		require.Error(t, m.TearDown(t.Context(), kruntime.RefOf(web), dir))
		synctest.Wait() // the metrics have received all
		assert.Equal(t, []string{
			"set up disk: <nil>", "set up kubernetes.io/empty-dir: <nil>",
			"tear down disk: detach a", "tear down kubernetes.io/empty-dir: <nil>",
		}, counts.lines)
	})
}
