package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/go-logr/logr"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/runtime/process"
)

// withEmbedded runs the function beside a runtime whose containers are processes of
// this machine, and makes its socket the settings' endpoint. The runtime is ready
// before the function begins and stays until it has ended; if the runtime fails,
// the function's context ends.
func withEmbedded(ctx context.Context, s *settings, log logr.Logger, f func(context.Context) error) error {
	rt, err := process.New(process.Options{
		Dir: filepath.Join(s.RootDir, "process"), PIDLimit: max(0, ptr.Deref(s.PodPidsLimit, 0)), Logger: log.WithName("process"),
	})
	if err != nil {
		return fmt.Errorf("no --container-runtime-endpoint is given, and the embedded runtime cannot be used: %w", err)
	}
	log.Info("Containers are processes of this machine, since no --container-runtime-endpoint is given")
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
	if errors.Is(rerr, process.ErrInUse) {
		rerr = fmt.Errorf("root directory %s is in use by another agent: %w", s.RootDir, rerr)
	}
	return errors.Join(err, rerr)
}
