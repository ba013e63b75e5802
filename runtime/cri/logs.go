package cri

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	v1 "k8s.io/api/core/v1"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime/cri/internal/translate"
)

// Bounds of a termination message (API reference, terminationMessagePolicy).
const (
	maxMessageFile = 4096
	maxMessageLog  = 2048
	maxMessageLine = 80
	// maxTailRead bounds how much of a log is read to find its last lines. A line is at
	// most 16 KiB and some in containerd and CRI-O.
	maxTailRead = 2 << 20
)

// terminationMessage returns what an exited container has left to say: its
// message file, or the end of its log where the policy wants that and it failed
// without a message.
func terminationMessage(s *criv1.ContainerStatus, record *translate.Record) string {
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
	message, err := tailLog(s.GetLogPath(), maxMessageLine, maxMessageLog)
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
	return readFrom(f, max(0, info.Size()-limit), limit)
}

// readFrom returns at most limit bytes from an offset on.
func readFrom(f io.ReaderAt, offset, limit int64) ([]byte, error) {
	return io.ReadAll(io.NewSectionReader(f, offset, limit))
}

// tailLog returns what the last lines of a log in CRI's format say, at most limit
// bytes of it, the last ones.
func tailLog(path string, lines int, limit int) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	// Twice as much each time, until there are lines enough.
	for window := int64(16 << 10); ; window *= 2 {
		offset := max(0, info.Size()-window)
		data, err := readFrom(f, offset, window)
		if err != nil {
			return nil, err
		}
		whole := offset == 0
		if whole || window >= maxTailRead || bytes.Count(data, []byte{'\n'}) > lines {
			return tailOf(data, whole, lines, limit), nil
		}
	}
}

// tailOf is [tailLog] over bytes. whole says that data begins with a line's
// beginning.
func tailOf(data []byte, whole bool, lines, limit int) []byte {
	if !whole {
		_, data, _ = bytes.Cut(data, []byte{'\n'})
	}
	start := len(data)
	for n := 0; n < lines && start > 0; n++ {
		// The last byte is the line's own end.
		start = bytes.LastIndexByte(data[:start-1], '\n') + 1
	}
	data = data[start:]

	var out []byte
	for len(data) > 0 {
		line, rest, _ := bytes.Cut(data, []byte{'\n'})
		out = appendLogLine(out, line)
		data = rest
	}
	return out[max(0, len(out)-limit):]
}

// appendLogLine appends what a line "<time> <stream> <tags> <text>" says, and the
// end of the line unless it is tagged as partial. A line of another form, such as
// one that a crash has cut, says nothing.
func appendLogLine(out, line []byte) []byte {
	_, rest, ok := bytes.Cut(line, []byte{' '})
	if !ok {
		return out
	}
	stream, rest, ok := bytes.Cut(rest, []byte{' '})
	if !ok || string(stream) != string(criv1.Stdout) && string(stream) != string(criv1.Stderr) {
		return out
	}
	tags, text, ok := bytes.Cut(rest, []byte{' '})
	if !ok {
		return out
	}
	out = append(out, text...)
	first, _, _ := bytes.Cut(tags, []byte(criv1.LogTagDelimiter))
	if string(first) != string(criv1.LogTagPartial) {
		out = append(out, '\n')
	}
	return out
}
