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

	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/internal/safefile"
	"github.com/kubeletkit/kubeletkit/runtime/process/internal/supervise"
)

const (
	// supervisorPatience is the time that a supervisor may take to answer. A supervisor
	// that takes longer hangs.
	supervisorPatience = 10 * time.Second
	// lookAgain is the time between two looks at a process that is about to end.
	lookAgain = 5 * time.Millisecond
	// huntTries is the number of passes of a hunt with pauses of lookAgain. The later ones
	// have pauses of a second. minHuntTries is the minimum number of passes: as a rule, they
	// are enough to find out that no process is left.
	huntTries, minHuntTries = 1000, 20

	// unknownExitCode is the exit code of a container whose supervisor was killed. It is
	// containerd's for a container whose exit was lost.
	unknownExitCode = 255
	// The reasons of an exit, in the words of other runtimes.
	reasonCompleted  = "Completed"
	reasonError      = "Error"
	reasonOOM        = "OOMKilled"
	reasonStartError = "StartError"
	reasonUnknown    = "Unknown"
)

// stop ends a container. It sends the stop signal to the process group of the command, and
// after the timeout SIGKILL to all processes of the container. If timeout is 0 or less, it
// sends SIGKILL at once. It returns nil when no process is left. If ctx ends first, the
// container is not killed, and a later call starts from the beginning.
func (s *Server) stop(ctx context.Context, c *container, timeout time.Duration) error {
	// A container that is being started is stopped when it runs.
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
		err := supervise.Call(ctx, c.dir, supervise.Request{Op: supervise.OpSignal, Signal: int(sig)},
			supervisorPatience)
		switch {
		case ctx.Err() != nil:
			return status.FromContextError(ctx.Err()).Err()
		case err == nil:
			ended, err := c.await(ctx, timeout)
			if err != nil || ended {
				return err
			}
		default:
			s.opts.Logger.V(1).Info("A supervisor does not accept the stop signal", "container", c.rec.Title,
				"err", err.Error())
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
	// The supervisor hangs or has ended. Without it, watch finds and kills the processes.
	c.mu.Lock()
	p := c.process
	c.mu.Unlock()
	if p.Supervisor.Alive() && err != nil {
		s.opts.Logger.Info("A supervisor does not answer and is killed", "container", c.rec.Title, "err", err.Error())
		_ = p.Supervisor.Kill(unix.SIGKILL)
	}
	ended, err := c.await(ctx, supervisorPatience)
	if err == nil && !ended {
		err = status.Errorf(codes.DeadlineExceeded, "%s: it was killed, but its processes have not ended yet",
			c.about())
	}
	return err
}

// await waits until the container has ended or the timeout has passed. It reports whether
// the container has ended.
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

// stopSignal returns the number of a signal of CRI. The default is SIGTERM.
func stopSignal(s criv1.Signal) unix.Signal {
	if s == criv1.Signal_SIGNAL_RUNTIME_DEFAULT {
		return unix.SIGTERM
	}
	return signalNumber(strings.TrimPrefix(s.String(), "SIGNAL_"))
}

// watch syncs the records of a container, waits until it has ended, and records its exit. It
// returns early if the server's life ends.
func (s *Server) watch(c *container) {
	s.syncRecords(c)
	retry := flow.Backoff{Min: lookAgain, Max: time.Second}
	for failures := 1; s.life.Err() == nil; failures++ {
		if s.waitWhileItLives(c) {
			failures = 1
		}
		if s.life.Err() != nil {
			return
		}
		// The exit is the last file that a supervisor writes.
		var exit supervise.Exit
		if supervise.ReadFile(filepath.Join(c.dir, supervise.ExitFile), &exit) == nil {
			s.ended(c, &exit)
			return
		}
		lock, err := supervise.Lock(c.dir)
		if err == nil {
			s.ended(c, nil)
			safefile.Unlock(lock)
			return
		}
		if !errors.Is(err, safefile.ErrLocked) {
			s.opts.Logger.Error(err, "Cannot watch a container; trying again", "container", c.rec.Title)
		}
		// The supervisor lives. It is about to end, cannot record the exit yet, or hangs.
		flow.Sleep(s.life, retry.After(failures))
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

// ended records that a container has ended. If exit is nil, its supervisor has ended too,
// and the caller holds the lock of the container's directory.
func (s *Server) ended(c *container, exit *supervise.Exit) {
	c.mu.Lock()
	p := c.process
	c.mu.Unlock()
	if exit == nil {
		exit = &supervise.Exit{}
		path := filepath.Join(c.dir, supervise.ExitFile)
		if err := supervise.ReadFile(path, exit); err != nil {
			if !errors.Is(err, fs.ErrNotExist) {
				s.discard(path, err)
			}
			lost, done := s.unsupervised(c, p, time.Time{})
			if !done {
				return // the next server continues
			}
			exit = &lost
		}
	}
	c.end(exit)
	b, _ := s.sandbox(c.rec.SandboxID)
	s.publish(c.rec.ID, criv1.ContainerEventType_CONTAINER_STOPPED_EVENT, b)
	s.reap(p.Supervisor)
}

// reap waits until a supervisor that has recorded the exit has ended. If it is a child of
// this process, it does not stay a zombie.
func (s *Server) reap(p supervise.Process) {
	for p.Alive() {
		if !flow.Sleep(s.life, lookAgain) {
			return
		}
	}
	p.Reap()
}

// end sets the state of a container that has ended.
func (c *container) end(exit *supervise.Exit) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.exit, c.state, c.started = exit, criv1.ContainerState_CONTAINER_EXITED, exit.StartedAt
	c.reason, c.message = reasonOf(exit)
	close(c.gone)
}

// reasonOf returns the reason and the message of an exit for the container's status.
func reasonOf(e *supervise.Exit) (reason, message string) {
	switch {
	case e.Lost:
		return reasonUnknown, e.Error
	case e.Error != "":
		return reasonStartError, e.Error
	case e.OOM && e.Code == 128+int(unix.SIGKILL):
		// The command was killed, or is a shell that returns the code of a child that was.
		return reasonOOM, ""
	case e.Code == 0:
		return reasonCompleted, ""
	default:
		return reasonError, ""
	}
}

// unsupervised kills the processes of a container whose supervisor has ended without a
// record of the exit, and records an unknown exit. done is false if the server's life ends
// first, or the time comes and a process is left; the zero time never comes.
func (s *Server) unsupervised(c *container, p supervise.State, until time.Time) (_ supervise.Exit, done bool) {
	s.opts.Logger.Info("The supervisor of a container was killed; the processes of the container are killed too",
		"container", c.rec.Title)
	hunt := supervise.NewHunt(s.environs, c.mark, p.Command, c.rec.Cgroup)
	for tries := 1; !s.pass(hunt); tries++ {
		pause := lookAgain
		if tries > huntTries { // a process does not end
			pause = time.Second
		}
		late := !until.IsZero() && tries > minHuntTries && time.Now().After(until)
		if late || !flow.Sleep(s.life, pause) {
			hunt.End()
			return supervise.Exit{}, false
		}
	}
	return s.lost(c, p), true
}

// lost records the unknown exit of a container of which no process is left.
func (s *Server) lost(c *container, p supervise.State) supervise.Exit {
	_ = c.rec.Cgroup.Remove(s.life)
	exit := supervise.Exit{
		Code: unknownExitCode, Lost: true, Error: "its supervisor was killed, so its exit code is not known",
		StartedAt: p.StartedAt, FinishedAt: time.Now(),
	}
	if err := supervise.WriteExit(c.dir, exit); err != nil {
		s.opts.Logger.Error(err, "Cannot record the end of a container", "container", c.rec.Title)
	}
	return exit
}

// notStarted records that a start has failed. No process of the container is left.
func (s *Server) notStarted(c *container, err error) {
	now := time.Now()
	exit := supervise.Exit{Code: 128, Error: err.Error(), StartedAt: now, FinishedAt: now}
	var known *supervise.CommandError
	if !errors.As(err, &known) {
		if err := supervise.WriteExit(c.dir, exit); err != nil {
			s.opts.Logger.Error(err, "Cannot record that a container did not start", "container", c.rec.Title)
		}
	}
	c.end(&exit)
}

// discard removes a damaged state file, or a directory with one. It is not kept: it may have
// the secrets of a container, and nothing else would remove it.
func (s *Server) discard(path string, why error) {
	if err := os.RemoveAll(path); err != nil {
		s.opts.Logger.Error(err, "Cannot remove a damaged state file", "file", path, "damage", why.Error())
		return
	}
	s.opts.Logger.Error(why, "A state file was damaged, and is removed", "file", path)
}

// ignore logs a file that does not belong where it is. It is left there.
func (s *Server) ignore(path string) {
	s.opts.Logger.Info("A file does not belong into the directory of the runtime, and is ignored", "file", path)
}
