package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"syscall"

	"github.com/go-logr/logr"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/examples/minikubelet/internal/config"
	"github.com/kubeletkit/kubeletkit/runtime/process"
)

// embeddedDir is the directory of the embedded runtime.
func embeddedDir(s *config.Settings) string { return filepath.Join(s.RootDir, "process") }

// withEmbedded runs the embedded runtime, whose containers are processes of this machine,
// while f runs, and sets the endpoint of the settings to its socket. The runtime is ready
// before f begins and ends after f. If the runtime fails, the context of f ends.
func withEmbedded(ctx context.Context, s *config.Settings, log logr.Logger, f func(context.Context) error) error {
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
		return fmt.Errorf("root directory %s is in use by another agent; stop it, or give this one a directory of "+
			"its own with --root-dir: %w", s.RootDir, err)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return fmt.Errorf("root directory %s cannot be written to by this user; give another one with --root-dir: %w",
			s.RootDir, err)
	case err != nil && ctx.Err() != nil:
		return nil // it was stopped while it started
	case err != nil:
		return fmt.Errorf("no --container-runtime-endpoint is given, and the embedded runtime cannot be used: %w", err)
	}
	s.ContainerRuntimeEndpoint = rt.Endpoint()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		<-rt.Done() // also after f
		cancel()
	}()
	return errors.Join(f(ctx), rt.Close())
}
