package server

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/crilog"
)

// followPeriod is the time between two reads of a log that is followed. Each costs a
// read and a stat for each client.
const followPeriod = 100 * time.Millisecond

// logOptions are the supported fields of the API's PodLogOptions.
type logOptions struct {
	follow, previous, timestamps bool
	// tail is the number of lines from the end. Negative means all lines.
	tail int
}

// logOptionsOf parses the query. A parameter that is not supported is an error.
func logOptionsOf(query url.Values) (logOptions, error) {
	o := logOptions{tail: -1}
	var errs []error
	for name, values := range query {
		var err error
		switch value := values[0]; name {
		case "follow":
			o.follow, err = strconv.ParseBool(value)
		case "previous":
			o.previous, err = strconv.ParseBool(value)
		case "timestamps":
			o.timestamps, err = strconv.ParseBool(value)
		case "tailLines":
			if o.tail, err = strconv.Atoi(value); err == nil && o.tail < 0 {
				err = errors.New("must not be negative")
			}
		case "stream":
			if value != v1.LogStreamAll {
				err = errors.New("only All is supported")
			}
		default:
			err = errors.New("not supported")
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s=%s: %w", name, values[0], err))
		}
	}
	return o, errors.Join(errs...)
}

// containerLogs answers with the log of a container. With follow, the answer continues
// until no more can come, with the logs of later instances as well.
func (c *control) containerLogs(w http.ResponseWriter, req *http.Request) {
	opts, err := logOptionsOf(req.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	pod, container, ok := c.target(w, req)
	if !ok {
		return
	}
	seen, _ := c.containers.RuntimeStatus(pod.UID)
	instance, err := chooseInstance(pod, seen, container, opts.previous)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	flush := http.NewResponseController(w)
	out := &lineWriter{w: bufio.NewWriterSize(w, 32<<10), flush: func() { _ = flush.Flush() }, timestamps: opts.timestamps}
	s := &logStream{control: c, pod: pod, container: container, out: out, follow: opts.follow && !opts.previous}
	if err := s.run(req.Context(), instance, opts.tail); err != nil {
		if !out.began && !errors.Is(err, errReaderGone) {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		c.log.V(1).Info("A log was not sent completely", "pod", runtime.RefOf(pod), "container", container, "reason", err.Error())
		if !errors.Is(err, errReaderGone) {
			_ = out.end()
			panic(http.ErrAbortHandler) // closes the connection, so that the client sees an error
		}
	}
}

// chooseInstance returns the instance whose log is sent: the newest, or the previous one.
func chooseInstance(pod *v1.Pod, seen *runtime.PodStatus, container string, previous bool) (*runtime.ContainerStatus, error) {
	if previous {
		if s := statusOf(&pod.Status, container); s != nil && s.LastTerminationState.Terminated != nil {
			id, err := runtime.ParseContainerID(s.LastTerminationState.Terminated.ContainerID)
			if instance := seen.ByID(id); err == nil && instance != nil {
				return instance, nil
			}
		}
		return nil, fmt.Errorf("previous terminated container %q in pod %q not found", container, pod.Name)
	}
	instance := seen.Newest(container)
	if instance == nil && pod.Status.Phase == v1.PodFailed && statusOf(&pod.Status, container) == nil {
		return nil, fmt.Errorf("container %q in pod %q was not started: %s", container, pod.Name, stateOf(pod, container))
	}
	if instance == nil || instance.State == runtime.ContainerCreated {
		return nil, fmt.Errorf("container %q in pod %q is waiting to start: %s", container, pod.Name, stateOf(pod, container))
	}
	if instance.LogPath == "" {
		return nil, fmt.Errorf("the runtime does not report the log file of container %q in pod %q", container, pod.Name)
	}
	return instance, nil
}

// nextInstance returns the instance of the container after the given one, or nil.
func nextInstance(seen *runtime.PodStatus, after *runtime.ContainerStatus) *runtime.ContainerStatus {
	if seen == nil {
		return nil
	}
	// The newest is the first in the list.
	for _, c := range slices.Backward(seen.Containers) {
		if c.Name == after.Name && c.ID != after.ID && c.CreatedAt.After(after.CreatedAt) &&
			c.LogPath != "" && c.State != runtime.ContainerCreated {
			return &c
		}
	}
	return nil
}

// mayRestart reports whether a container that has ended with the code may be started
// again, according to the pod's spec.
func mayRestart(pod *v1.Pod, container string, exitCode int32) bool {
	policy := pod.Spec.RestartPolicy
	var own *v1.ContainerRestartPolicy
	var rules []v1.ContainerRestartRule
	for _, c := range pod.Spec.Containers {
		if c.Name == container {
			own, rules = c.RestartPolicy, c.RestartPolicyRules
		}
	}
	for _, c := range pod.Spec.InitContainers {
		if c.Name != container {
			continue
		}
		own, rules = c.RestartPolicy, c.RestartPolicyRules
		if policy == v1.RestartPolicyAlways {
			policy = v1.RestartPolicyOnFailure // unless it is a sidecar
		}
	}
	for _, c := range pod.Spec.EphemeralContainers {
		if c.Name == container {
			return false
		}
	}
	if own != nil {
		policy = v1.RestartPolicy(*own)
	}
	switch {
	case policy == v1.RestartPolicyAlways, len(rules) > 0 && exitCode != 0:
		return true
	case policy == v1.RestartPolicyOnFailure:
		return exitCode != 0
	default:
		return false
	}
}

// logStream is one answer of /containerLogs.
type logStream struct {
	*control
	pod       *v1.Pod
	container string
	out       *lineWriter
	follow    bool
}

func (s *logStream) run(ctx context.Context, instance *runtime.ContainerStatus, tail int) error {
	for instance != nil {
		if err := s.copy(ctx, instance, tail); err != nil || !s.follow {
			return errors.Join(err, s.out.end())
		}
		instance, tail = s.next(ctx, instance), -1
	}
	return s.out.end()
}

// copy sends the log of one instance. With follow, it returns when the instance has
// ended and its whole log is sent.
func (s *logStream) copy(ctx context.Context, instance *runtime.ContainerStatus, tail int) error {
	var r *crilog.Reader
	defer func() {
		if r != nil {
			_ = r.Close()
		}
	}()
	// The end of an instance may be known a moment before its last output is in the file.
	for last := false; ; last = s.ended(instance) {
		var err error
		if r == nil {
			r, err = crilog.Open(instance.LogPath, tail)
			if err != nil && (!errors.Is(err, fs.ErrNotExist) || !s.follow) {
				return fmt.Errorf("opening the log of container %q in pod %q: %w", s.container, s.pod.Name, err)
			}
		}
		if r != nil {
			err = s.drain(r, last || !s.follow)
		} else {
			err = s.out.send() // the headers, so that the client knows that the request is accepted
		}
		if err != nil {
			return err
		}
		if last || !s.follow || !wait(ctx) {
			return nil
		}
	}
}

// drain sends the rest of the log. With all, it also sends a last line that is not
// complete.
func (s *logStream) drain(r *crilog.Reader, all bool) error {
	for {
		l, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if err := s.out.write(l); err != nil {
			return err
		}
	}
	if all {
		if l, ok := r.Rest(); ok {
			if err := s.out.write(l); err != nil {
				return err
			}
		}
	}
	return s.out.send()
}

// ended reports whether the instance has ended or does not exist any more.
func (s *logStream) ended(instance *runtime.ContainerStatus) bool {
	seen, _ := s.containers.RuntimeStatus(s.pod.UID)
	now := seen.ByID(instance.ID)
	return now == nil || now.State == runtime.ContainerExited
}

// next waits for the instance after one that has ended. It returns nil if there will be
// none.
func (s *logStream) next(ctx context.Context, after *runtime.ContainerStatus) *runtime.ContainerStatus {
	for {
		seen, _ := s.containers.RuntimeStatus(s.pod.UID)
		if now := seen.ByID(after.ID); now != nil {
			after = now
		}
		if next := nextInstance(seen, after); next != nil {
			return next
		}
		if !s.lives() || !mayRestart(s.pod, s.container, after.ExitCode) || !wait(ctx) {
			return nil
		}
	}
}

// lives reports whether the pod still exists, and has not ended and is not to end.
func (s *logStream) lives() bool {
	for _, p := range s.agent.Pods() {
		if p.UID == s.pod.UID {
			return p.DeletionTimestamp == nil && p.Status.Phase != v1.PodSucceeded && p.Status.Phase != v1.PodFailed
		}
	}
	return false
}

// wait waits for followPeriod. It returns false if ctx has ended.
func wait(ctx context.Context) bool {
	t := time.NewTimer(followPeriod)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
