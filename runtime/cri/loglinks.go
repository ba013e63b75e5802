package cri

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/internal/crimeta"
)

// usualPodLogsDir is kubelet's directory of logs, and usualLogLinksDir its directory of
// links to them, which log shippers read (kubelet: kuberuntime/legacy.go).
const (
	usualPodLogsDir  = "/var/log/pods"
	usualLogLinksDir = "/var/log/containers"
)

// logLinksDir returns the directory of links to logs in podLogsDir, "" if there is none.
func (r *Runtime) logLinksDir(podLogsDir string) string {
	if r.opts.LogLinksDir == "" && filepath.Clean(podLogsDir) == usualPodLogsDir {
		return usualLogLinksDir
	}
	return r.opts.LogLinksDir
}

// linkLog makes the link to the log of an instance that has started. As in kubelet there
// is no link without a log file, and a failure is only logged, once in a row.
func (s *podSync) linkLog(config *criv1.ContainerConfig, id string) {
	dir := s.r.logLinksDir(s.Host.PodLogsDir)
	if dir == "" || strings.Contains(id, "/") { // the ID is from the runtime
		return
	}
	log := filepath.Join(s.config.GetLogDirectory(), config.GetLogPath())
	if _, err := os.Stat(log); errors.Is(err, fs.ErrNotExist) {
		return
	}
	link := filepath.Join(dir, crimeta.LogLink(s.ref, config.GetMetadata().GetName(), id))
	err := os.Symlink(log, link)
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(dir, 0o755); err == nil {
			err = os.Symlink(log, link)
		}
	}
	failed := err != nil && !errors.Is(err, fs.ErrExist)
	if before := s.r.unlinked.Swap(failed); failed && !before {
		s.r.opts.Logger.Error(err, "Links to the logs of containers cannot be made; log shippers may miss these",
			"pod", s.ref, "link", link)
	}
}

// removeLogLink removes the link to the log of an instance, if there is one. A link to another log is
// left alone: the directory may have those of other runtimes.
func (r *Runtime) removeLogLink(ref runtime.PodRef, s *criv1.ContainerStatus) error {
	// <logs>/<pod>/<container>/<n>.log
	dir := r.logLinksDir(filepath.Dir(filepath.Dir(filepath.Dir(s.GetLogPath()))))
	name := crimeta.LogLink(ref, containerName(s.GetLabels(), s.GetMetadata()), s.GetId())
	if dir == "" || strings.Contains(name, "/") {
		return nil
	}
	link := filepath.Join(dir, name)
	if target, err := os.Readlink(link); err != nil || target != s.GetLogPath() {
		return nil
	}
	if err := os.Remove(link); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
