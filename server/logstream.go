package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/crilog"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// checkPeriod is the time after which a reader looks again where nothing reports changes.
const checkPeriod = time.Second

// settleTime is the time after the end of an instance in which its last output may still come
// to its log.
const settleTime = 100 * time.Millisecond

// logStream sends the log of a container to one client.
type logStream struct {
	*containerLogs
	pod       *v1.Pod
	container string
	out       *lineWriter
	opts      logOptions
	// changed receives a value when the status of the pod may have changed. It is nil if
	// changes are not reported, and while the log is not followed.
	changed <-chan struct{}
	// clock is stopped while it is not needed.
	clock *time.Timer
}

// run sends the log. If it is followed, run returns when the container has ended, or with
// restarts, when the pod has. The error of a log that began to be sent means that it is not
// complete.
func (s *logStream) run(ctx context.Context, instance *runtime.ContainerStatus) error {
	if s.opts.previous {
		s.opts.follow = false
	}
	if s.opts.follow {
		changed, stop := s.agent.WatchRuntimeStatus(s.pod.UID)
		defer stop()
		s.changed = changed
		s.clock = time.NewTimer(checkPeriod)
		defer s.clock.Stop()
	}
	tail := s.opts.tail
	for first := true; instance != nil; first = false {
		if err := s.copy(ctx, instance, tail, first); err != nil {
			if errors.Is(err, errLimit) {
				return s.out.send()
			}
			return err
		}
		if !s.opts.follow || !s.opts.restarts {
			return nil
		}
		instance, tail = s.next(ctx, instance), -1
	}
	return nil
}

// copy sends the log of one instance. If the log is followed, copy returns when the instance
// has ended and its whole log is sent. An instance that is not the first one may have ended
// without a log, and its last output may still come if it has ended already.
func (s *logStream) copy(ctx context.Context, instance *runtime.ContainerStatus, tail int, first bool) error {
	if !s.opts.follow {
		r, err := s.open(instance, tail)
		if err != nil {
			return err
		}
		defer func() { _ = r.Close() }()
		if err := r.Freeze(); err != nil {
			return err
		}
		if err := s.drain(ctx, r, true); err != nil {
			return err
		}
		return s.out.send()
	}
	written, stop := s.watch.add(instance.LogPath)
	defer stop()
	var r *crilog.Reader
	defer func() {
		if r != nil {
			_ = r.Close()
		}
	}()
	ended := s.ended(instance)
	for last := ended && first; ; {
		if r == nil {
			var err error
			r, err = s.open(instance, tail)
			if err != nil && (last && first || !errors.Is(err, fs.ErrNotExist)) {
				return err
			}
		}
		var retryAfter time.Duration
		if r != nil {
			if err := s.drain(ctx, r, last); err != nil {
				return err
			}
			retryAfter = r.RetryAfter()
		}
		// Without a line this sends the headers: the client knows that the request is accepted.
		if err := s.out.send(); err != nil || last && retryAfter == 0 {
			return err
		}
		if !ended {
			if !s.wait(ctx, written, retryAfter) {
				return context.Cause(ctx)
			}
			ended = s.ended(instance)
		}
		if last = ended; last {
			s.clock.Reset(max(settleTime, retryAfter))
			select {
			case <-s.clock.C:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
}

func (s *logStream) open(instance *runtime.ContainerStatus, tail int) (*crilog.Reader, error) {
	var r *crilog.Reader
	var err error
	if tail < 0 && !s.opts.since.IsZero() {
		r, err = crilog.OpenSince(instance.LogPath, s.opts.since)
	} else {
		r, err = crilog.Open(instance.LogPath, tail)
	}
	if err != nil {
		return nil, fmt.Errorf("failed to open log file %q: %w", instance.LogPath, err)
	}
	return r, nil
}

// drain writes the rest of the log. With all, it also writes a last line that is not
// complete.
func (s *logStream) drain(ctx context.Context, r *crilog.Reader, all bool) error {
	for n := 1; ; n++ {
		l, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("failed to read log file: %w", err)
		}
		if err := s.out.line(l, false); err != nil {
			return err
		}
		// Nothing may be written for long, if the client has requested recent lines only.
		if n%4096 == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	if all {
		if l, ok := r.Rest(); ok {
			return s.out.line(l, true)
		}
	}
	return nil
}

// ended reports whether the instance does not run any more.
func (s *logStream) ended(instance *runtime.ContainerStatus) bool {
	seen, _ := s.agent.RuntimeStatus(s.pod.UID)
	now := seen.ByID(instance.ID)
	return now == nil || now.State == runtime.ContainerExited || now.State == runtime.ContainerUnknown
}

// wait waits until there may be more to send, at most for a time that is greater than 0. It returns false if ctx has
// ended.
func (s *logStream) wait(ctx context.Context, written <-chan struct{}, most time.Duration) bool {
	var tick <-chan time.Time
	if written == nil || s.changed == nil {
		most = flow.Soonest(most, checkPeriod)
	}
	if most > 0 {
		s.clock.Reset(most)
		tick = s.clock.C
	}
	select {
	case <-written:
	case <-s.changed:
	case <-tick:
	case <-ctx.Done():
		return false
	}
	return true
}

// next waits for the instance after one that has ended. It returns nil if there will be
// none.
func (s *logStream) next(ctx context.Context, after *runtime.ContainerStatus) *runtime.ContainerStatus {
	for {
		seen, _ := s.agent.RuntimeStatus(s.pod.UID)
		if now := seen.ByID(after.ID); now != nil {
			after = now
		}
		if next := nextInstance(seen, after); next != nil {
			return next
		}
		// That the pod is to end is not in its status in the runtime: look once a second.
		if !s.lives() || !mayRestart(s.pod, s.container, after.ExitCode) || !s.wait(ctx, nil, 0) {
			return nil
		}
	}
}

// nextInstance returns the instance of the container after the given one, or nil. The order is that of the
// list, not that of the times at which they were created: the clock may have been set back between them.
func nextInstance(seen *runtime.PodStatus, after *runtime.ContainerStatus) *runtime.ContainerStatus {
	if seen == nil {
		return nil
	}
	// The newest is the first in the list. If the given one was removed, all that are left are newer.
	newer := seen.Containers
	if i := slices.IndexFunc(newer, func(c runtime.ContainerStatus) bool { return c.ID == after.ID }); i >= 0 {
		newer = newer[:i]
	}
	for _, c := range slices.Backward(newer) {
		if c.Name == after.Name && c.LogPath != "" && c.State != runtime.ContainerCreated {
			return &c
		}
	}
	return nil
}

// mayRestart reports whether a container that has ended with the code may be started
// again, according to the pod's spec.
func mayRestart(pod *v1.Pod, container string, exitCode int32) bool {
	c, kind := podspec.FindContainer(&pod.Spec, container)
	return c != nil && podspec.ShouldRestart(pod, c, kind, exitCode)
}

// lives reports whether the pod still exists, and has not ended and is not to end.
func (s *logStream) lives() bool {
	p, ok := s.agent.Pod(s.pod.UID)
	return ok && p.DeletionTimestamp == nil && !podspec.IsPhaseTerminal(p.Status.Phase)
}
