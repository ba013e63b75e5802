package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// HostPath is the [Plugin] for a file, directory, socket or device of the host.
type HostPath struct{}

var _ Plugin = HostPath{}

// Name returns kubelet's name of the plugin.
func (HostPath) Name() string { return "kubernetes.io/host-path" }

// Supports reports whether the volume is a host path.
func (HostPath) Supports(v *v1.Volume) bool { return v.HostPath != nil }

// SetUp checks what stands at the path against the type that the spec asks for,
// and makes it for the types that say so: directories with mode 0755, files with
// 0644 (API reference, HostPathVolumeSource).
func (HostPath) SetUp(_ context.Context, _ *v1.Pod, v *v1.Volume, _ string) (runtime.Volume, error) {
	path := v.HostPath.Path
	if !filepath.IsAbs(path) {
		return runtime.Volume{}, fmt.Errorf("hostPath %q: must be an absolute path", path)
	}
	want := v1.HostPathUnset
	if v.HostPath.Type != nil {
		want = *v.HostPath.Type
	}
	if err := checkHostPath(path, want); err != nil {
		return runtime.Volume{}, fmt.Errorf("hostPath %s: %w", path, err)
	}
	return runtime.Volume{HostPath: path}, nil
}

func checkHostPath(path string, want v1.HostPathType) error {
	if want == v1.HostPathUnset {
		return nil // whatever is there; the runtime makes a directory if nothing is
	}
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		switch want {
		case v1.HostPathDirectoryOrCreate:
			return os.MkdirAll(path, 0o755)
		case v1.HostPathFileOrCreate:
			// The directory must be there: the API says that it is not made.
			f, err := os.OpenFile(path, os.O_CREATE|os.O_RDONLY, 0o644)
			if err != nil {
				return err
			}
			return f.Close()
		}
	}
	if err != nil {
		return fmt.Errorf("type check failed: %w", err)
	}
	ok := false
	switch mode := info.Mode(); want {
	case v1.HostPathDirectory, v1.HostPathDirectoryOrCreate:
		ok = mode.IsDir()
	case v1.HostPathFile, v1.HostPathFileOrCreate:
		ok = mode.IsRegular()
	case v1.HostPathSocket:
		ok = mode&fs.ModeSocket != 0
	case v1.HostPathCharDev:
		ok = mode&fs.ModeCharDevice != 0
	case v1.HostPathBlockDev:
		ok = mode&fs.ModeDevice != 0 && mode&fs.ModeCharDevice == 0
	default:
		return fmt.Errorf("unknown type %q", want)
	}
	if !ok {
		return fmt.Errorf("type check failed: it is not a %s", want)
	}
	return nil
}
