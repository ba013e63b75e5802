package cri

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/internal/safefile"
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

	if path := terminationLog(containerName(s.GetLabels(), s.GetMetadata()), record.TerminationMessagePath,
		s.GetMounts()); path != "" {
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

// terminationLog returns the file for the termination message of a container; "" if there is
// none. messagePath may be relative to the root of the container.
//
// A spec can have another file mounted at that path, such as one below a hostPath. The container
// could replace a directory above it by a link, and have any file of the host read. So only a
// file with the name of those that this package or kubelet makes for the container counts.
func terminationLog(container, messagePath string, mounts []*criv1.Mount) string {
	if messagePath == "" {
		return ""
	}
	messagePath = translate.Absolute(messagePath)
	for _, m := range mounts {
		if path := m.GetHostPath(); m.GetContainerPath() == messagePath && (isTerminationLog(container, path) ||
			isKubeletsTerminationLog(container, path)) {
			return path
		}
	}
	return ""
}

// isTerminationLog reports whether a path has the name of a file of makeTerminationLog.
func isTerminationLog(container, path string) bool {
	unique, ok := strings.CutPrefix(filepath.Base(path), terminationLogPrefix+container+".")
	return ok && isUnique(unique)
}

// isKubeletsTerminationLog reports whether a path is <directory of the pod>/containers/<container>/<unique>.
func isKubeletsTerminationLog(container, path string) bool {
	dir, unique := filepath.Split(filepath.Clean(path))
	dir = filepath.Clean(dir)
	return filepath.Base(dir) == container && filepath.Base(filepath.Dir(dir)) == "containers" && isUnique(unique)
}

// isUnique reports whether a text has eight hexadecimal digits.
func isUnique(text string) bool {
	_, err := hex.DecodeString(text)
	return err == nil && len(text) == 8
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
	f, err := safefile.Open(path)
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
