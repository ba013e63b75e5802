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
// is no link without a log file, and a failure is only logged.
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
	if err != nil && !errors.Is(err, fs.ErrExist) {
		s.r.opts.Logger.Error(err, "Link to the log of a container cannot be made; log shippers may miss it", "pod", s.ref, "link", link)
	}
}

// removeLogLink removes the link to the log of an instance, if there is one.
func (r *Runtime) removeLogLink(ref runtime.PodRef, s *criv1.ContainerStatus) error {
	// <logs>/<pod>/<container>/<n>.log
	dir := r.logLinksDir(filepath.Dir(filepath.Dir(filepath.Dir(s.GetLogPath()))))
	name := crimeta.LogLink(ref, containerName(s.GetLabels(), s.GetMetadata()), s.GetId())
	if dir == "" || strings.Contains(name, "/") {
		return nil
	}
	link := filepath.Join(dir, name)
	if info, err := os.Lstat(link); err != nil || info.Mode().Type() != fs.ModeSymlink {
		return nil
	}
	if err := os.Remove(link); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
