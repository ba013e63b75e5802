package volumetest_test

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	goruntime "runtime"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/testenv"
	"github.com/kubeletkit/kubeletkit/node/volume"
	"github.com/kubeletkit/kubeletkit/node/volume/volumetest"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// defective is a plugin with one defect. A function that is nil changes nothing.
type defective struct {
	volume.EmptyDir
	name     func() string
	setUp    func(ctx context.Context, req volume.SetUpRequest) error
	ready    func(req volume.SetUpRequest, v *runtime.Volume)
	tearDown func(ctx context.Context, req volume.TearDownRequest) error
}

func (d *defective) Name() string {
	if d.name != nil {
		return d.name()
	}
	return d.EmptyDir.Name()
}

func (d *defective) SetUp(ctx context.Context, req volume.SetUpRequest) (runtime.Volume, error) {
	if d.setUp != nil {
		if err := d.setUp(ctx, req); err != nil {
			return runtime.Volume{}, err
		}
	}
	v, err := d.EmptyDir.SetUp(ctx, req)
	if err == nil && d.ready != nil {
		d.ready(req, &v)
	}
	return v, err
}

func (d *defective) TearDown(ctx context.Context, req volume.TearDownRequest) error {
	if d.tearDown != nil {
		if err := d.tearDown(ctx, req); err != nil {
			return err
		}
	}
	return d.EmptyDir.TearDown(ctx, req)
}

// TestDefective runs the suite on a plugin with the defect of this process.
func TestDefective(t *testing.T) {
	defect, broken := defects[testenv.Defect()]
	if !broken {
		t.Skip("this process has no defect")
	}
	f := emptyDir(v1.StorageMediumDefault)
	f.New = func(*testing.T) volume.Plugin {
		d := &defective{}
		defect.apply(d)
		return d
	}
	volumetest.Suite(t, f)
}

func TestTheSuiteFindsDefects(t *testing.T) {
	found, without := map[string]string{}, map[string]string{}
	for name, defect := range defects {
		if defect.found == "DiskFullAtEachStep" && (goruntime.GOOS != "linux" || os.Getuid() != 0) {
			without[defect.found] = "it mounts"
			continue
		}
		found[name] = defect.found
	}
	testenv.FindsDefects(t, "TestDefective", found, volumetest.Cases(), without)
}

// defect is found by the test of that name.
type defect struct {
	found string
	apply func(d *defective)
}

var errDefect = errors.New("the defect")

// present reports whether there is a file of the plugin.
func present(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func touch(path string) error { return os.WriteFile(path, nil, 0o600) }

// locks has SetUp fail if it finds the lock of one that was interrupted.
func locks(ctx context.Context, req volume.SetUpRequest) error {
	lock := filepath.Join(req.StateDir, "lock")
	if present(lock) {
		return errDefect
	}
	return errors.Join(touch(lock), ctx.Err())
}

func unlock(req volume.SetUpRequest, _ *runtime.Volume) {
	_ = os.Remove(filepath.Join(req.StateDir, "lock"))
}

// defects has, by its name, each defect and the test that finds it.
var defects = map[string]defect{
	"has another name after a restart": {"Name", func(d *defective) {
		name := "example.com/" + rand.Text()
		d.name = func() string { return name }
	}},
	"empties what is set up again": {"SetUpTwice", func(d *defective) {
		d.setUp = func(_ context.Context, req volume.SetUpRequest) error { return os.RemoveAll(req.Dir) }
	}},
	"finds its volume in memory only": {"SetUpAfterRestart", func(d *defective) {
		name := rand.Text()
		d.ready = func(req volume.SetUpRequest, v *runtime.Volume) {
			v.HostPath = filepath.Join(req.Dir, name)
			_ = os.MkdirAll(v.HostPath, 0o700)
		}
	}},
	"stays locked by an interruption": {"SetUpAfterAnInterruptedOne", func(d *defective) { d.setUp, d.ready = locks, unlock }},
	"stays locked by a later interruption": {"SetUpCancelledAtEachStep", func(d *defective) {
		d.ready = unlock
		d.setUp = func(ctx context.Context, req volume.SetUpRequest) error {
			if err := ctx.Err(); err != nil {
				return err
			}
			return locks(ctx, req)
		}
	}},
	"takes half of it for whole": {"DiskFullAtEachStep", func(d *defective) {
		d.setUp = func(_ context.Context, req volume.SetUpRequest) error {
			first, second := filepath.Join(req.StateDir, "first"), filepath.Join(req.StateDir, "second")
			switch {
			case !present(first):
				return errors.Join(touch(first), touch(second))
			case !present(second):
				return errDefect
			default:
				return nil
			}
		}
	}},
	"sets up once": {"SetUpAfterTearDown", func(d *defective) {
		var done sync.Map
		d.setUp = func(_ context.Context, req volume.SetUpRequest) error {
			if _, again := done.LoadOrStore(req.Pod.UID, true); again {
				return errDefect
			}
			return nil
		}
	}},
	"takes down what is in memory": {"TearDownAfterRestart", func(d *defective) {
		var mu sync.Mutex
		ready := map[types.UID]bool{}
		d.ready = func(req volume.SetUpRequest, _ *runtime.Volume) {
			mu.Lock()
			defer mu.Unlock()
			ready[req.Pod.UID] = true
		}
		d.tearDown = func(_ context.Context, req volume.TearDownRequest) error {
			mu.Lock()
			defer mu.Unlock()
			if !ready[req.Pod.UID] {
				return errDefect
			}
			return nil
		}
	}},
	"takes down once": {"TearDownTwice", func(d *defective) {
		d.setUp = func(_ context.Context, req volume.SetUpRequest) error {
			return touch(filepath.Join(req.StateDir, "id"))
		}
		d.tearDown = func(_ context.Context, req volume.TearDownRequest) error {
			return os.Remove(filepath.Join(req.StateDir, "id"))
		}
	}},
	"forgets what it has to take down": {"TearDownCancelledAtEachStep", func(d *defective) {
		d.setUp = func(_ context.Context, req volume.SetUpRequest) error {
			return touch(filepath.Join(req.StateDir, "id"))
		}
		d.tearDown = func(ctx context.Context, req volume.TearDownRequest) error {
			id := filepath.Join(req.StateDir, "id")
			if !present(id) && present(req.Dir) {
				return errDefect
			}
			_ = os.Remove(id)
			return ctx.Err()
		}
	}},
	"must have set up something": {"TearDownOfNothing", func(d *defective) {
		d.setUp = func(_ context.Context, req volume.SetUpRequest) error {
			return touch(filepath.Join(req.StateDir, "id"))
		}
		d.tearDown = func(_ context.Context, req volume.TearDownRequest) error {
			if !present(filepath.Join(req.StateDir, "id")) {
				return errDefect
			}
			return nil
		}
	}},
	"has one directory for all pods": {"PodsAtTheSameTime", func(d *defective) {
		var shared sync.Map
		d.ready = func(req volume.SetUpRequest, v *runtime.Volume) {
			dir, _ := shared.LoadOrStore("", filepath.Join(os.TempDir(), "kubeletkit-"+rand.Text()))
			v.HostPath = dir.(string)
			_ = os.MkdirAll(v.HostPath, 0o700)
		}
		d.tearDown = func(context.Context, volume.TearDownRequest) error {
			if dir, ok := shared.Load(""); ok {
				return os.RemoveAll(dir.(string))
			}
			return nil
		}
	}},
}
