package cri

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/internal/crimeta"
)

// RemoveContainer implements [runtime.Remover]. It removes the logs first, rotated ones
// too, so that none is left when the removal fails afterwards. Concurrent callers for
// the same container share one removal, as runtimes refuse the second.
func (r *Runtime) RemoveContainer(ctx context.Context, id runtime.ContainerID) error {
	return r.removeOnce(ctx, id, removeLogs)
}

// logsOf says what becomes of the logs of a container that is removed.
type logsOf bool

const (
	removeLogs logsOf = false
	// keepLogs keeps them until the pod is gone. They show how many instances a container had.
	keepLogs logsOf = true
)

func (r *Runtime) removeOnce(ctx context.Context, id runtime.ContainerID, logs logsOf) error {
	return once(ctx, &r.removals, "removing container "+id.String(), id.ID,
		func() error { return r.removeContainer(ctx, id, logs) })
}

func (r *Runtime) removeContainer(ctx context.Context, id runtime.ContainerID, logs logsOf) error {
	about := "container " + id.String()
	leave, err := r.ends.enter(ctx, second, callStep())
	if err != nil {
		return fmt.Errorf("removing %s: %w", about, err)
	}
	defer leave()
	resp, err := call(ctx, r, "ContainerStatus", about, 0, r.rs.ContainerStatus,
		&criv1.ContainerStatusRequest{ContainerId: id.ID})
	if errors.Is(err, runtime.ErrNotFound) {
		r.index.removed(id.ID)
		return nil
	}
	if err != nil {
		return err
	}
	s := resp.GetStatus()
	ref, ok := crimeta.RefFromLabels(s.GetLabels())
	if ok {
		about = "pod " + ref.String() + ", container " + containerName(s.GetLabels(), s.GetMetadata())
	}
	if state := s.GetState(); state == criv1.ContainerState_CONTAINER_RUNNING {
		return fmt.Errorf("%s: %s is running; stop it before it is removed", about, id)
	}
	if logs == removeLogs {
		if err := r.removeLogs(s); err != nil {
			return fmt.Errorf("%s: removing its logs: %w", about, err)
		}
	}
	if ok {
		if err := r.removeLogLink(ref, s); err != nil {
			return fmt.Errorf("%s: removing the link to its log: %w", about, err)
		}
	}
	if record, _ := crimeta.ReadRecord(s.GetAnnotations()); record.TerminationMessagePath != "" {
		removeTerminationLog(containerName(s.GetLabels(), s.GetMetadata()), record.TerminationMessagePath,
			s.GetMounts())
	}
	r.uses.ended(s.GetImageId(), unixTime(s.GetFinishedAt()))
	_, err = call(ctx, r, "RemoveContainer", about, 0, r.rs.RemoveContainer,
		&criv1.RemoveContainerRequest{ContainerId: id.ID})
	if err = unlessGone(err); err == nil {
		r.index.removed(id.ID)
	}
	return err
}

// unlessGone returns the error of a removal, or nil if there was nothing to remove. A
// runtime that refuses to remove a container that it does not list as running is
// inconsistent: after a start that was cut off, containerd can stay so until it is
// restarted (containerd#11037).
func unlessGone(err error) error {
	if status.Code(err) == codes.FailedPrecondition {
		return fmt.Errorf("%w; the runtime does not list it as running; if this persists, restart the runtime, "+
			"which leaves containers running", err)
	}
	return unlessNotFound(err)
}

// removeLogs removes the log of a container, and what was rotated from it: "<log>.<time>",
// also compressed. The path is from the runtime. It must be one that this package or
// kubelet gives to a container, so that the runtime cannot have other files removed.
func (r *Runtime) removeLogs(s *criv1.ContainerStatus) error {
	log := s.GetLogPath()
	if log == "" {
		return nil
	}
	logs, ok := r.isLogPath(log, s)
	if !ok {
		r.opts.Logger.Info("The log of a container is not where logs of pods are; it is not removed",
			"container", s.GetId(), "path", log)
		return nil
	}
	// A link in the place of a directory must not lead out of the logs.
	root, err := os.OpenRoot(logs)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close()
	dir, base := filepath.Split(filepath.Clean(log)[len(logs):])
	dir = strings.Trim(dir, "/")
	entries, err := readDir(root, dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, errNoDir):
		r.opts.Logger.Info(
			"There is something else in the place of the directory of a container's log; it is not removed",
			"container", s.GetId(), "path", log)
		return nil
	case err != nil:
		return err
	}
	var errs []error
	for _, e := range entries {
		name := e.Name()
		if e.IsDir() || name != base && !strings.HasPrefix(name, base+".") {
			continue
		}
		if err := root.Remove(path.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// errNoDir means that a path is neither that of a directory nor that of a link.
var errNoDir = errors.New("not a directory")

// readDir reads a directory. It does not wait for the other end of a pipe in its place.
func readDir(root *os.Root, dir string) ([]fs.DirEntry, error) {
	info, err := root.Lstat(dir)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() && info.Mode().Type() != fs.ModeSymlink {
		return nil, errNoDir
	}
	f, err := root.OpenFile(dir, os.O_RDONLY|syscall.O_NONBLOCK, 0) // it may have been replaced
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return f.ReadDir(-1)
}

// isLogPath reports whether a path is <logs>/<namespace>_<name>_<uid>/<container>/<n>.log
// of the container, and returns <logs>.
func (r *Runtime) isLogPath(log string, s *criv1.ContainerStatus) (logs string, _ bool) {
	ref, ok := crimeta.RefFromLabels(s.GetLabels())
	container, file := filepath.Split(filepath.Clean(log))
	number, isLog := strings.CutSuffix(file, ".log")
	if _, err := strconv.ParseUint(number, 10, 32); err != nil || !ok || !isLog || !filepath.IsAbs(log) {
		return "", false
	}
	container = filepath.Clean(container)
	pod := filepath.Dir(container)
	logs = filepath.Dir(pod)
	// The names are from the runtime, too, and may have slashes.
	return logs, pod == crimeta.LogDirectory(logs, ref) &&
		filepath.Base(container) == containerName(s.GetLabels(), s.GetMetadata())
}

// RemoveSandbox implements [runtime.Remover]. The logs of its containers remain; they are
// removed with the log directory of the pod.
func (r *Runtime) RemoveSandbox(ctx context.Context, id string) error {
	return once(ctx, &r.removals, "removing sandbox "+id, id, func() error { return r.removeSandbox(ctx, id) })
}

func (r *Runtime) removeSandbox(ctx context.Context, id string) error {
	about := "sandbox " + id
	leave, err := r.ends.enter(ctx, second, callStep())
	if err != nil {
		return fmt.Errorf("removing %s: %w", about, err)
	}
	defer leave()
	if !r.isLeft(id) || !r.removal.mayRemoveRunning(id) {
		// CRI requires that it is stopped.
		if err := r.stopSandboxNow(ctx, about, id); err != nil {
			return err
		}
	}
	_, err = call(ctx, r, "RemovePodSandbox", about, 0, r.rs.RemovePodSandbox,
		&criv1.RemovePodSandboxRequest{PodSandboxId: id})
	err = unlessGone(err)
	if err == nil {
		r.index.removed(id)
		r.stopped.remove(id)
	} else {
		r.removal.forget(id)
	}
	r.left.remove(id) // what could not be removed is stopped the next time
	return err
}
