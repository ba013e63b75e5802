package kubelet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/client"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/config"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/local"
	"github.com/kubeletkit/kubeletkit/node/cgroup"
	"github.com/kubeletkit/kubeletkit/node/volume"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/cri"
	"github.com/kubeletkit/kubeletkit/runtime/process"
)

// stopPods ends the pods that an agent has left in a container runtime, takes down their volumes and removes
// their cgroups. The endpoint is "" for the embedded runtime in the root directory.
func stopPods(ctx context.Context, rootDir, endpoint string, out io.Writer) error {
	s := &config.Settings{RootDir: rootDir}
	s.ContainerRuntimeEndpoint = endpoint
	if _, err := os.Stat(rootDir); err == nil {
		// An agent that starts meanwhile would lose the volumes of its pods.
		unlock, err := kubeletkit.LockRoot(ctx, rootDir)
		if err != nil {
			return err
		}
		defer unlock()
	}
	if endpoint != "" {
		return killPods(ctx, s, out)
	}
	if _, err := os.Stat(embeddedDir(s)); errors.Is(err, os.ErrNotExist) {
		n, err := process.CleanUp(ctx, process.Options{Dir: embeddedDir(s)})
		switch {
		case err != nil && !errors.Is(err, process.ErrNotSupported):
			return err
		case n > 0:
			fmt.Fprintf(out, "No agent runs, and its root directory was deleted. The processes and cgroups of its "+
				"pods are gone (%d).\n", n)
			return nil
		}
		return fmt.Errorf("no agent answers on %s, and no agent with the embedded runtime has run in %s; is this "+
			"its --root-dir? "+
			"For the pods of a container runtime start the agent again, or give its %s",
			filepath.Join(rootDir, config.SocketName), rootDir, endpointFlag(local.LastEndpoint(rootDir)))
	}
	rt, err := openEmbedded(ctx, s, silent())
	switch {
	case err != nil && ctx.Err() != nil:
		return nil // it was stopped while the runtime started
	case err != nil:
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		<-rt.Done() // also when it is closed
		cancel()
	}()
	return errors.Join(killPods(ctx, s, out), rt.Close())
}

// killPods ends all pods of a container runtime, each in its grace period, and then removes what they have left.
func killPods(ctx context.Context, s *config.Settings, out io.Writer) error {
	rt, err := cri.Dial(ctx, s.ContainerRuntimeEndpoint, cri.Options{Observer: runtime.Observer{Logger: silent()}})
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
	refs := map[types.UID]runtime.PodRef{}
	for _, pod := range pods {
		refs[pod.UID] = pod.PodRef
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
	} else {
		fmt.Fprintln(out, "No agent runs. "+client.Ending(names))
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if len(names) > 0 {
		fmt.Fprintln(out, "All pods have ended.")
	}
	uids, err := podDirs(s.RootDir)
	if err == nil {
		uids, err = notRunning(ctx, rt, uids)
	}
	if err == nil {
		err = takeDown(ctx, s.RootDir, uids, refs)
	}
	if !strings.HasPrefix(s.ContainerRuntimeEndpoint, "unix://"+embeddedDir(s)+"/") {
		pods, failed := cgroup.New(cgroup.Options{Driver: func() string { return rt.Features().CgroupDriver }})
		if failed == nil {
			failed = removeCgroups(pods, uids)
		}
		err = errors.Join(err, failed)
	}
	if err != nil {
		return fmt.Errorf("the pods have left something on the machine; run stop again when its cause is mended, or "+
			"start the agent: %w", err)
	}
	return nil
}

// notRunning returns the pods of which nothing runs: another agent may have started one.
func notRunning(ctx context.Context, rt runtime.Lister, uids []types.UID) ([]types.UID, error) {
	pods, err := runtime.ListPods(ctx, rt)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(uids, func(uid types.UID) bool {
		return slices.ContainsFunc(pods, func(pod *runtime.Pod) bool { return pod.UID == uid && pod.Running() })
	}), nil
}

// podDirs returns the pods that have a directory.
func podDirs(rootDir string) ([]types.UID, error) {
	entries, err := os.ReadDir(filepath.Join(rootDir, "pods"))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	var uids []types.UID
	for _, e := range entries {
		if e.IsDir() {
			uids = append(uids, types.UID(e.Name()))
		}
	}
	return uids, err
}

// takeDown takes down the volumes of pods of which nothing runs, as the agent does: what is on disk says what there
// is. refs has the names of pods that the runtime still has.
func takeDown(ctx context.Context, rootDir string, uids []types.UID, refs map[types.UID]runtime.PodRef) error {
	volumes, err := volume.New(volume.Options{Observer: runtime.Observer{Logger: silent()}})
	if err != nil {
		return err
	}
	var errs []error
	for _, uid := range uids {
		ref, ok := refs[uid]
		if !ok {
			ref = runtime.PodRef{UID: uid}
		}
		errs = append(errs, volumes.TearDown(ctx, ref, filepath.Join(rootDir, "pods", string(uid))))
	}
	return errors.Join(errs...)
}

// removeCgroups removes the cgroups of pods of which nothing runs, and those above them if no other pod has any.
func removeCgroups(pods *cgroup.Pods, uids []types.UID) error {
	var errs []error
	for _, uid := range uids {
		errs = append(errs, pods.Remove(uid))
	}
	return errors.Join(append(errs, pods.RemoveAbove())...)
}
