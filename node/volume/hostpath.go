package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/mounting"
	"github.com/kubeletkit/kubeletkit/internal/safefile"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// HostPath is the [Plugin] for a file, directory, socket or device of the host.
type HostPath struct{ checks *pathChecks }

var _ Plugin = HostPath{}

// Name returns kubelet's name of the plugin.
func (HostPath) Name() string { return "kubernetes.io/host-path" }

// Supports reports whether the volume is a host path.
func (HostPath) Supports(v *v1.Volume) bool { return v.HostPath != nil }

// SetUp checks that what is at the path has the type in the spec. The types
// DirectoryOrCreate and FileOrCreate are made if nothing is there: directories with
// mode 0755, files with 0644 (API reference, HostPathVolumeSource), less the umask of the agent, as
// in kubelet. When the check has succeeded once for the pod, its failure is an [OutdatedError]:
// kubelet does not check again, so that containers restart. A file system that does not answer delays SetUp until ctx
// ends.
func (p HostPath) SetUp(ctx context.Context, req SetUpRequest) (runtime.Volume, error) {
	source := req.Volume.HostPath
	path := source.Path
	if !filepath.IsAbs(path) {
		return runtime.Volume{}, fmt.Errorf("hostPath %q: must be an absolute path", path)
	}
	want := v1.HostPathUnset
	if source.Type != nil {
		want = *source.Type
	}
	ready, passed := runtime.Volume{HostPath: path}, filepath.Join(req.StateDir, "passed")
	if want == v1.HostPathUnset {
		return ready, nil
	}
	before := stepsOf(ctx)
	if err := before.step("make the path"); err != nil {
		return runtime.Volume{}, err
	}
	switch err := p.checks.do(ctx, path, func(ctx context.Context) error { return checkHostPath(ctx, path, want) }); {
	case err == nil:
		if err := before.step("remember the path"); err != nil {
			return runtime.Volume{}, err
		}
		rememberPath(passed, path)
		return ready, nil
	case hasPath(passed, path):
		return ready, &OutdatedError{err}
	default:
		return runtime.Volume{}, err
	}
}

// rememberPath writes the path to a file of the state, unless it is there. It reports no error:
// without the file, the check is repeated.
func rememberPath(file, path string) {
	if hasPath(file, path) || os.MkdirAll(filepath.Dir(file), 0o750) != nil {
		return
	}
	_ = os.WriteFile(file, []byte(path), 0o600)
}

func hasPath(file, path string) bool {
	data, err := safefile.ReadFile(file, maxStateFile)
	return err == nil && string(data) == path
}

// TearDown does nothing: what is on the host stays.
func (HostPath) TearDown(context.Context, TearDownRequest) error { return nil }

// checkHostPath checks what is at the path, or makes it. It makes nothing after the end of ctx.
func checkHostPath(ctx context.Context, path string, want v1.HostPathType) error {
	if want == v1.HostPathUnset {
		return nil // anything will do; the runtime makes a directory if nothing is there
	}
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		if ctx.Err() != nil { // the check was left behind, and the pod may be gone
			return context.Cause(ctx)
		}
		switch want {
		case v1.HostPathDirectoryOrCreate:
			return os.MkdirAll(path, 0o755)
		case v1.HostPathFileOrCreate:
			// The directory above must exist: according to the API it is not made. O_EXCL: a container
			// that can write there may have planted a link to what does not exist, or a pipe just now.
			f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDONLY, 0o644)
			if err != nil {
				return err
			}
			return f.Close()
		}
	}
	mode := fs.ModeIrregular // of none of the types
	if err == nil {
		mode = info.Mode()
	}
	var ok bool
	var kind string
	switch want {
	case v1.HostPathDirectory, v1.HostPathDirectoryOrCreate:
		ok, kind = mode.IsDir(), "directory"
	case v1.HostPathFile, v1.HostPathFileOrCreate:
		ok, kind = mode.IsRegular(), "file"
	case v1.HostPathSocket:
		ok, kind = mode&fs.ModeSocket != 0, "socket file"
	case v1.HostPathCharDev:
		ok, kind = mode&fs.ModeCharDevice != 0, "character device"
	case v1.HostPathBlockDev:
		ok, kind = mounting.IsBlockDevice(mode), "block device"
	default:
		return fmt.Errorf("%s is an invalid volume type", want)
	}
	// The texts are kubelet's (checkTypeInternal), which does not tell why a path cannot be read.
	switch {
	case ok:
		return nil
	case err == nil || errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("hostPath type check failed: %s is not a %s", path, kind)
	default:
		return fmt.Errorf("hostPath type check failed: %s is not a %s: %w", path, kind, err)
	}
}
