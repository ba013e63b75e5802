package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"github.com/kubeletkit/kubeletkit/examples/minikubelet/internal/client"
	"github.com/kubeletkit/kubeletkit/examples/minikubelet/internal/config"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/cri"
)

// stopPods ends the pods that an agent has left in a container runtime. The endpoint is ""
// for the embedded runtime in the root directory.
func stopPods(ctx context.Context, rootDir, endpoint string, out io.Writer) error {
	s := &config.Settings{RootDir: rootDir}
	s.ContainerRuntimeEndpoint = endpoint
	if endpoint != "" {
		return killPods(ctx, endpoint, out)
	}
	if _, err := os.Stat(embeddedDir(s)); errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("no agent answers on %s, and no agent with the embedded runtime has run in %s; is this its --root-dir? "+
			"For the pods of a container runtime start the agent again, or give its --container-runtime-endpoint",
			filepath.Join(rootDir, config.SocketName), rootDir)
	}
	return withEmbedded(ctx, s, silent(), func(ctx context.Context) error { return killPods(ctx, s.ContainerRuntimeEndpoint, out) })
}

// killPods ends all pods of a container runtime, each in its grace period.
func killPods(ctx context.Context, endpoint string, out io.Writer) error {
	rt, err := cri.Dial(ctx, endpoint, cri.Options{Logger: silent()})
	if err != nil {
		return err
	}
	defer func() { _ = rt.Close() }()
	pods, err := rt.ListPods(ctx)
	if err != nil {
		return fmt.Errorf("no agent runs, and its container runtime does not answer either: %w", err)
	}
	var names []string
	var g errgroup.Group
	for _, pod := range pods {
		if !pod.Running() {
			continue
		}
		names = append(names, pod.Namespace+"/"+pod.Name)
		g.Go(func() error {
			status, err := rt.InspectPod(ctx, pod.PodRef)
			if err == nil {
				err = rt.KillPod(ctx, runtime.PodKill{Status: status})
			}
			if err != nil {
				return fmt.Errorf("ending pod %s: %w", pod.PodRef, err)
			}
			return nil
		})
	}
	if len(names) == 0 {
		fmt.Fprintln(out, "No agent runs, and no pods run.")
		return nil
	}
	fmt.Fprintln(out, "No agent runs. "+client.Ending(names))
	if err := g.Wait(); err != nil {
		return err
	}
	fmt.Fprintln(out, "All pods have ended.")
	return nil
}
