package cri

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	v1 "k8s.io/api/core/v1"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime/crilog"
	"github.com/kubeletkit/kubeletkit/runtime/internal/crimeta"
)

// Bounds of a termination message (API reference, terminationMessagePolicy).
const (
	maxMessageFile = 4096
	maxMessageLog  = 2048
	maxMessageLine = 80
)

// terminationMessage returns what an exited container has left to say: its
// message file, or the end of its log where the policy wants that and it failed
// without a message.
func terminationMessage(s *criv1.ContainerStatus, record *crimeta.Record) string {
	// A container that could not be started has written nothing.
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

// mountedAt returns what of the host is mounted at a path of the container; "" if
// nothing is.
func mountedAt(mounts []*criv1.Mount, path string) string {
	for _, m := range mounts {
		if path != "" && m.GetContainerPath() == path {
			return m.GetHostPath()
		}
	}
	return ""
}

// joinMessages puts the runtime's word before the container's.
func joinMessages(runtimes, containers string) string {
	if runtimes == "" || containers == "" {
		return runtimes + containers
	}
	return runtimes + ": " + containers
}

// readEnd returns the last bytes of a regular file, at most limit. It may lie in a
// volume, so no link is followed and no other end of a pipe is waited for.
func readEnd(path string, limit int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|openAsIs, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("not a regular file, but %s", info.Mode().Type())
	}
	return io.ReadAll(io.NewSectionReader(f, max(0, info.Size()-limit), limit))
}
