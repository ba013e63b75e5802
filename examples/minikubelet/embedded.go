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
	rt, err := process.New(process.Options{
		Dir: embeddedDir(s), AgentDir: s.RootDir, PIDLimit: max(0, ptr.Deref(s.PodPidsLimit, 0)), Logger: log.WithName("process"),
	})
	if err != nil {
		return fmt.Errorf("no --container-runtime-endpoint is given, and the embedded runtime cannot be used: %w", err)
	}
	s.ContainerRuntimeEndpoint = rt.Endpoint()
	fctx, cancel := context.WithCancel(ctx)
	defer cancel()
	rctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	ended := make(chan error, 1) // one value, of the one goroutine
	go func() {
		err := rt.Run(rctx)
		cancel()
		ended <- err
	}()
	select {
	case <-rt.Ready():
		err = f(fctx)
	case <-fctx.Done():
	}
	stop()
	rerr := <-ended
	switch {
	case errors.Is(rerr, process.ErrInUse):
		rerr = fmt.Errorf("root directory %s is in use by another agent; stop it, or give this one a directory of its own with --root-dir: %w", s.RootDir, rerr)
	case errors.Is(rerr, fs.ErrPermission), errors.Is(rerr, syscall.EROFS):
		rerr = fmt.Errorf("root directory %s cannot be written to by this user; give another one with --root-dir: %w", s.RootDir, rerr)
	}
	return errors.Join(err, rerr)
}
