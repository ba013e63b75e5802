package fake

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime/internal/crimeta"
)

// Exit codes of containers that a signal has ended: 128 plus its number.
const (
	codeTERM = 128 + 15
	codeKILL = 128 + 9
)

// run makes a created container a running one. mu is held.
func (s *service) run(c *container, b Behavior) {
	now := time.Now()
	c.setState(criv1.ContainerState_CONTAINER_RUNNING)
	c.started, c.behavior = now.UnixNano(), b
	c.usage, c.settled = b.Uses, now
	if b.RunFor > 0 && !s.closed {
		c.end = time.AfterFunc(b.RunFor, func() { s.endByItself(c) })
	}
	s.emit(c.sandbox, c, criv1.ContainerEventType_CONTAINER_STARTED_EVENT)
}

// signal sends the stop signal to a running container. A second one has no effect, as in
// containerd. mu is held.
func (s *service) signal(c *container) {
	b := &c.behavior
	if c.signalled || b.IgnoresStop || b.Unkillable || s.closed {
		return
	}
	c.signalled = true
	code := int32(codeTERM)
	if b.StopsClean {
		code = 0
	}
	if b.StopDelay <= 0 {
		s.end(c, code, "")
		return
	}
	c.term = time.AfterFunc(b.StopDelay, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.end(c, code, "")
	})
}

// kill kills a container. If it is unkillable, kill waits until it has ended otherwise or
// ctx ends.
func (s *service) kill(ctx context.Context, c *container) error {
	s.mu.Lock()
	unkillable := c.state == criv1.ContainerState_CONTAINER_RUNNING && c.behavior.Unkillable
	if !unkillable {
		s.end(c, codeKILL, "")
	}
	s.mu.Unlock()
	if !unkillable {
		return nil
	}
	select {
	case <-c.done:
		return nil
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}

// endByItself makes a container exit as defined by its behavior.
func (s *service) endByItself(c *container) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || c.state != criv1.ContainerState_CONTAINER_RUNNING {
		return
	}
	if text := c.behavior.TerminationMessage; text != "" {
		if err := c.leaveMessage(text); err != nil {
			c.message = "the termination message could not be written: " + err.Error()
		}
	}
	if c.behavior.OOM {
		s.end(c, codeKILL, "OOMKilled")
		return
	}
	s.end(c, c.behavior.ExitCode, "")
}

// end makes a running container an exited one. An empty reason means that of
// containerd. mu is held.
func (s *service) end(c *container, code int32, reason string) {
	if c.state != criv1.ContainerState_CONTAINER_RUNNING {
		return
	}
	if reason == "" {
		reason = "Completed"
		if code != 0 {
			reason = "Error"
		}
	}
	c.stopTimers()
	c.settleUsage()
	c.usage = Usage{}
	c.setState(criv1.ContainerState_CONTAINER_EXITED)
	c.finished, c.exitCode, c.reason = time.Now().UnixNano(), code, reason
	close(c.done)
	s.emit(c.sandbox, c, criv1.ContainerEventType_CONTAINER_STOPPED_EVENT)
}

// drop removes a container that does not run. mu is held.
func (s *service) drop(c *container) {
	if s.containers.byID[c.id] != c {
		return
	}
	s.containers.remove(c)
	delete(s.names, c.fullName())
	c.sandbox.containers = remove(c.sandbox.containers, c)
	s.emit(c.sandbox, c, criv1.ContainerEventType_CONTAINER_DELETED_EVENT)
}

// write writes output to the log of the container, in the format of CRI.
func (c *container) write(output string) error {
	if output == "" || c.logPath() == "" {
		return nil
	}
	var data bytes.Buffer
	now := time.Now().Format(time.RFC3339Nano)
	for line := range strings.Lines(output) {
		data.WriteString(now + " stdout F " + strings.TrimSuffix(line, "\n") + "\n")
	}
	return appendTo(c.logPath(), data.Bytes())
}

// appendTo appends to a file, which is created if necessary. The client creates its
// directory.
func appendTo(path string, data []byte) error {
	if path == "" {
		return nil
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o640)
	if err == nil {
		_, err = f.Write(data)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return status.Errorf(codes.Internal, "writing a log: %v", err)
	}
	return nil
}

// leaveMessage writes to the file that is mounted at the termination message path of
// the container.
func (c *container) leaveMessage(text string) error {
	at := c.config.GetAnnotations()[crimeta.AnnotationTerminationMessagePath]
	for _, m := range c.config.GetMounts() {
		if at != "" && filepath.Clean(m.GetContainerPath()) == filepath.Clean(at) {
			return os.WriteFile(m.GetHostPath(), []byte(text), 0o666)
		}
	}
	return nil
}
