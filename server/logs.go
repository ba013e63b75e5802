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

// followPeriod is how often a log that is followed is looked at. It costs a read
// and a stat for each client, and nothing when there is none.
const followPeriod = 100 * time.Millisecond

// logOptions are those of the API's PodLogOptions that are served.
type logOptions struct {
	follow, previous, timestamps bool
	// tail is how many lines are wanted of the end; negative for all.
	tail int
}

// logOptionsOf reads the query. What kubelet knows and this does not is refused.
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

// containerLogs answers what a container has written. With follow, it goes on with
// what comes, and with the container's further instances, while they may come.
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
		c.log.V(1).Info("A log was not sent to its end", "pod", runtime.RefOf(pod), "container", container, "reason", err.Error())
		if !errors.Is(err, errReaderGone) {
			_ = out.end()
			panic(http.ErrAbortHandler) // the documented way to let the client know
		}
	}
}

// chooseInstance returns the instance that a request without an ID means.
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
		return nil, fmt.Errorf("the runtime does not tell where container %q in pod %q has its log", container, pod.Name)
	}
	return instance, nil
}

// nextInstance returns the instance of the container that came after one, or nil.
func nextInstance(seen *runtime.PodStatus, after *runtime.ContainerStatus) *runtime.ContainerStatus {
	if seen == nil {
		return nil
	}
	// The newest come first.
	for _, c := range slices.Backward(seen.Containers) {
		if c.Name == after.Name && c.ID != after.ID && c.CreatedAt.After(after.CreatedAt) &&
			c.LogPath != "" && c.State != runtime.ContainerCreated {
			return &c
		}
	}
	return nil
}

// mayRestart reports whether the spec has a container that has ended with the code
// started again.
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

// copy sends the log of one instance; when following, until the instance has ended
// and all was read.
func (s *logStream) copy(ctx context.Context, instance *runtime.ContainerStatus, tail int) error {
	var r *crilog.Reader
	defer func() {
		if r != nil {
			_ = r.Close()
		}
	}()
	// What was written before the end may be in the file a moment after it was told.
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
			err = s.out.send() // the client learns that its request was taken
		}
		if err != nil {
			return err
		}
		if last || !s.follow || !wait(ctx) {
			return nil
		}
	}
}

// drain sends what there is; with all, also a last line without its end.
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

// ended reports whether the instance has ended, or is not known any more.
func (s *logStream) ended(instance *runtime.ContainerStatus) bool {
	seen, _ := s.containers.RuntimeStatus(s.pod.UID)
	now := seen.ByID(instance.ID)
	return now == nil || now.State == runtime.ContainerExited
}

// next waits for the instance that comes after one that has ended. It returns nil
// if none will.
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

// lives reports whether the pod is still wanted and has not ended.
func (s *logStream) lives() bool {
	for _, p := range s.agent.Pods() {
		if p.UID == s.pod.UID {
			return p.Status.Phase != v1.PodSucceeded && p.Status.Phase != v1.PodFailed
		}
	}
	return false
}

// wait reports false if ctx has ended.
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
