package kubelet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"syscall"

	"github.com/go-logr/logr"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/kubelet/internal/config"
	"github.com/kubeletkit/kubeletkit/runtime/process"
)

// embeddedDir is the directory of the embedded runtime.
func embeddedDir(s *config.Settings) string { return filepath.Join(s.RootDir, "process") }

// openEmbedded starts the embedded runtime, whose containers are processes of this machine, and sets the endpoint of
// the settings to its socket. The caller closes it.
func openEmbedded(ctx context.Context, s *config.Settings, log logr.Logger) (*process.Server, error) {
	popts := process.Options{
		Dir: embeddedDir(s), AgentDir: s.RootDir, PIDLimit: max(0, ptr.Deref(s.PodPidsLimit, 0)),
		Logger: log.WithName("process"),
	}
	if s.ContainerLogMaxFiles != nil { // else it is stop, without settings
		if logs, ok := s.LogOptions(); ok {
			popts.LogMaxSize, popts.LogMaxFiles = logs.MaxSize, logs.MaxFiles
		}
	}
	rt, err := process.Open(ctx, popts)
	switch {
	case errors.Is(err, process.ErrInUse):
		return nil,
			fmt.Errorf("root directory %s is in use by another agent; stop it, or give this one a directory of "+
				"its own with --root-dir: %w", s.RootDir, err)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return nil, fmt.Errorf("root directory %s cannot be written to by this user; give another one with "+
			"--root-dir: %w",
			s.RootDir, err)
	case err != nil && ctx.Err() != nil:
		return nil, context.Cause(ctx) // it was stopped while it started
	case err != nil:
		return nil, fmt.Errorf("the embedded runtime cannot be used: %w; give a container runtime with --container-runtime-endpoint",
			err)
	}
	s.ContainerRuntimeEndpoint = rt.Endpoint()
	return rt, nil
}
