package process

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/internal/backoff"
	"github.com/kubeletkit/kubeletkit/internal/filelock"
	"github.com/kubeletkit/kubeletkit/runtime/process/internal/supervise"
)

const (
	// supervisorPatience is how long a supervisor may take for an answer before it is
	// taken for one that hangs.
	supervisorPatience = 10 * time.Second
	// lookAgain is how often is looked whether a process has ended where nothing tells.
	lookAgain = 5 * time.Millisecond
	// huntTries is how often is looked that often whether all of a container is gone that lost its supervisor.
	huntTries = 1000

	// unknownExitCode of containers whose supervisor was killed, so that nobody knows how
	// they ended; containerd has the same.
	unknownExitCode = 255
	// Reasons of ends, in the words that other runtimes use.
	reasonCompleted  = "Completed"
	reasonError      = "Error"
	reasonOOM        = "OOMKilled"
	reasonStartError = "StartError"
	reasonUnknown    = "Unknown"
)

// stop ends a container: its stop signal to the command's group, and SIGKILL to all
// there is of it when the timeout has passed, or at once without one. It returns when nothing is left, or
// when ctx ends; then the container is not killed, and a later call begins anew.
func (s *Server) stop(ctx context.Context, c *container, timeout time.Duration) error {
	// One that is being started is stopped when it runs.
	if err := c.acquire(ctx); err != nil {
		return err
	}
	c.mu.Lock()
	running := c.state == criv1.ContainerState_CONTAINER_RUNNING
	c.mu.Unlock()
	c.release()
	if !running {
		return nil
	}
	if timeout > 0 {
		sig := stopSignal(c.rec.Config.GetStopSignal())
		err := supervise.Call(ctx, c.dir, supervise.Request{Op: supervise.OpSignal, Signal: int(sig)}, supervisorPatience)
		switch {
		case ctx.Err() != nil:
			return status.FromContextError(ctx.Err()).Err()
		case err == nil:
			ended, err := c.await(ctx, timeout)
			if err != nil || ended {
				return err
			}
		default:
			s.opts.Logger.V(1).Info("A supervisor does not take the stop signal", "container", c.rec.Title, "err", err.Error())
		}
	}
	err := supervise.Call(ctx, c.dir, supervise.Request{Op: supervise.OpKill}, supervisorPatience)
	switch {
	case ctx.Err() != nil:
		return status.FromContextError(ctx.Err()).Err()
	case err == nil:
		if ended, err := c.await(ctx, supervisorPatience); err != nil || ended {
			return err
		}
	}
	// The supervisor hangs or is gone. Without it the tree is found by other means, see watch.
	c.mu.Lock()
	p := c.process
	c.mu.Unlock()
	if p.Supervisor.Alive() && err != nil {
		s.opts.Logger.Info("A supervisor does not answer and is killed", "container", c.rec.Title, "err", err.Error())
		_ = p.Supervisor.Kill(unix.SIGKILL)
	}
	ended, err := c.await(ctx, supervisorPatience)
	if err == nil && !ended {
		err = status.Errorf(codes.DeadlineExceeded, "%s: it was killed, but the kernel has not let go of it yet", c.about())
	}
	return err
}

// await waits until the container has ended, and reports whether it has.
func (c *container) await(ctx context.Context, timeout time.Duration) (bool, error) {
	t := time.NewTimer(timeout)
	defer t.Stop()
	select {
	case <-c.gone:
		return true, nil
	case <-t.C:
		return false, nil
	case <-ctx.Done():
		return false, status.FromContextError(ctx.Err()).Err()
	}
}

// stopSignal is the signal that CRI names; SIGTERM if it names none.
func stopSignal(s criv1.Signal) unix.Signal {
	if s == criv1.Signal_SIGNAL_RUNTIME_DEFAULT {
		return unix.SIGTERM
	}
	return signalNumber(strings.TrimPrefix(s.String(), "SIGNAL_"))
}

// watch waits until the container has ended, or the server's life does.
func (s *Server) watch(c *container) {
	retry := backoff.Exponential{Min: lookAgain, Max: time.Second}
	for failures := 1; s.life.Err() == nil; failures++ {
		if s.waitWhileItLives(c) {
			failures = 1
		}
		if s.life.Err() != nil {
			return
		}
		// The record of the exit is the last thing that a supervisor writes.
		var exit supervise.Exit
		if supervise.ReadFile(filepath.Join(c.dir, supervise.ExitFile), &exit) == nil {
			s.ended(c, &exit)
			return
		}
		lock, err := supervise.Lock(c.dir)
		if err == nil {
			s.ended(c, nil)
			filelock.Unlock(lock)
			return
		}
		if !errors.Is(err, filelock.ErrLocked) {
			s.opts.Logger.Error(err, "Cannot look after a container; trying again", "container", c.rec.Title)
		}
		// It lives: it is about to end, cannot record the exit yet, or does not answer.
		supervise.Pause(s.life, retry.After(failures))
	}
}

// waitWhileItLives returns when the supervisor of the container has ended or the
// server's life has. It reports false, at once, if the supervisor does not answer.
func (s *Server) waitWhileItLives(c *container) bool {
	conn, err := supervise.Dial(s.life, c.dir, supervisorPatience)
	if err != nil {
		return false
	}
	defer conn.Close()
	stop := context.AfterFunc(s.life, func() { _ = conn.Close() })
	defer stop()
	if conn.Send(supervise.Request{Op: supervise.OpWatch}) != nil {
		return false
	}
	var r supervise.Response
	if _, err := conn.Receive(&r); err != nil {
		return false
	}
	for err == nil {
		_, err = conn.Receive(&r) // nothing more is sent
	}
	return true
}

// ended takes note of a container that has ended. Without an exit its supervisor has
// ended too, and the caller has the lock of its directory.
func (s *Server) ended(c *container, exit *supervise.Exit) {
	c.mu.Lock()
	p := c.process
	c.mu.Unlock()
	if exit == nil {
		exit = &supervise.Exit{}
		path := filepath.Join(c.dir, supervise.ExitFile)
		if err := supervise.ReadFile(path, exit); err != nil {
			if !errors.Is(err, fs.ErrNotExist) {
				s.setAside(path, err)
			}
			lost, done := s.unsupervised(c, p)
			if !done {
				return // the next server goes on
			}
			exit = &lost
		}
	}
	c.end(exit)
	b, _ := s.sandbox(c.rec.SandboxID)
	s.publish(c.rec.ID, criv1.ContainerEventType_CONTAINER_STOPPED_EVENT, b)
	s.reap(p.Supervisor)
}

// reap waits until a supervisor that has nothing left to do has ended, so that it
// does not stay a zombie if it is a child of this process.
func (s *Server) reap(p supervise.Process) {
	for p.Alive() {
		if !supervise.Pause(s.life, lookAgain) {
			return
		}
	}
	p.Reap()
}

// end is how an exit becomes a state.
func (c *container) end(exit *supervise.Exit) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.exit, c.state, c.started = exit, criv1.ContainerState_CONTAINER_EXITED, exit.StartedAt
	c.reason, c.message = reasonOf(exit)
	close(c.gone)
}

// reasonOf puts an exit into the words of a status.
func reasonOf(e *supervise.Exit) (reason, message string) {
	switch {
	case e.Lost:
		return reasonUnknown, e.Error
	case e.Error != "":
		return reasonStartError, e.Error
	case e.OOM && e.Code == 128+int(unix.SIGKILL):
		// Killed itself, or a shell whose child was and that ends with the child's code.
		return reasonOOM, ""
	case e.Code == 0:
		return reasonCompleted, ""
	default:
		return reasonError, ""
	}
}

// unsupervised kills what is left of a container whose supervisor has ended without
// a record, and records that nobody knows how it ended. It is not done if the server's
// life ends first.
func (s *Server) unsupervised(c *container, p supervise.State) (_ supervise.Exit, done bool) {
	s.opts.Logger.Info("The supervisor of a container was killed; what is left of the container is killed too", "container", c.rec.Title)
	hunt := supervise.NewHunt(c.rec.ID, p.Command, c.rec.Cgroup)
	for tries := 1; !hunt.Pass(); tries++ {
		pause := lookAgain
		if tries > huntTries { // the kernel keeps something of it
			pause = time.Second
		}
		if !supervise.Pause(s.life, pause) {
			hunt.End()
			return supervise.Exit{}, false
		}
	}
	_ = c.rec.Cgroup.Remove(s.life)
	exit := supervise.Exit{
		Code: unknownExitCode, Lost: true, Error: "its supervisor was killed, so how it ended is not known",
		StartedAt: p.StartedAt, FinishedAt: time.Now(),
	}
	if err := supervise.WriteFile(filepath.Join(c.dir, supervise.ExitFile), exit); err != nil {
		s.opts.Logger.Error(err, "Cannot record the end of a container", "container", c.rec.Title)
	}
	return exit, true
}

// notStarted takes note of a start that has failed. No process is left of it.
func (s *Server) notStarted(c *container, err error) {
	now := time.Now()
	exit := supervise.Exit{Code: 128, Error: err.Error(), StartedAt: now, FinishedAt: now}
	var known *supervise.CommandError
	if !errors.As(err, &known) {
		if err := supervise.WriteFile(filepath.Join(c.dir, supervise.ExitFile), exit); err != nil {
			s.opts.Logger.Error(err, "Cannot record that a container did not start", "container", c.rec.Title)
		}
	}
	c.end(&exit)
}

// setAside renames a file that cannot be what it should be, so that it can be looked
// at and does not stand in the way.
func (s *Server) setAside(path string, why error) {
	aside := path + ".bad"
	if err := os.Rename(path, aside); err != nil {
		s.opts.Logger.Error(err, "Cannot set a damaged file aside", "file", path)
		return
	}
	s.opts.Logger.Error(why, "A file of the state is damaged or foreign, and was set aside", "file", aside)
}
