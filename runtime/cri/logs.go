package cri

import (
	"errors"
	"fmt"
	"io"
	"io/fs"

	v1 "k8s.io/api/core/v1"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/internal/regular"
	"github.com/kubeletkit/kubeletkit/runtime/cri/internal/translate"
	"github.com/kubeletkit/kubeletkit/runtime/crilog"
	"github.com/kubeletkit/kubeletkit/runtime/internal/crimeta"
)

// Bounds of a termination message (API reference, terminationMessagePolicy).
const (
	maxMessageFile = 4096
	maxMessageLog  = 2048
	maxMessageLine = 80
)

// terminationMessage returns the termination message of an exited container: its message
// file or, if the policy requests it and the container failed without a message, the
// end of its log.
func terminationMessage(s *criv1.ContainerStatus, record *crimeta.Record) string {
	// A container that could not be started has no output.
	fallback := record.TerminationMessagePolicy == v1.TerminationMessageFallbackToLogsOnError &&
		s.GetExitCode() != 0 && s.GetReason() != "ContainerCannotRun"

	if path := mountedAt(s.GetMounts(), record.TerminationMessagePath); path != "" {
		message, err := readEnd(path, maxMessageFile)
		switch {
		case err == nil && len(message) > 0:
			return string(message)
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return fmt.Sprintf("Error on reading termination log %s: %v", path, err)
		}
	}
	if !fallback {
		return ""
	}
	message, err := crilog.Tail(s.GetLogPath(), maxMessageLine, maxMessageLog)
	if err != nil {
		return fmt.Sprintf("Error on reading termination message from logs: %v", err)
	}
	return string(message)
}

// mountedAt returns the host path that is mounted at a path of the container, which may be
// relative to its root; "" if there is no such mount.
func mountedAt(mounts []*criv1.Mount, path string) string {
	if path == "" {
		return ""
	}
	path = translate.Absolute(path)
	for _, m := range mounts {
		if m.GetContainerPath() == path {
			return m.GetHostPath()
		}
	}
	return ""
}

// joinMessages joins the messages of the runtime and the container.
func joinMessages(runtimes, containers string) string {
	if runtimes == "" || containers == "" {
		return runtimes + containers
	}
	return runtimes + ": " + containers
}

// readEnd returns the last bytes of a regular file, at most limit. The path may be in a
// volume.
func readEnd(path string, limit int64) ([]byte, error) {
	f, err := regular.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.NewSectionReader(f, max(0, info.Size()-limit), limit))
}
