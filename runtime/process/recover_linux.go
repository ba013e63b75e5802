package process

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/kubeletkit/kubeletkit/internal/filelock"
	"github.com/kubeletkit/kubeletkit/runtime/process/internal/supervise"
)

// idPattern is what [newID] returns.
var idPattern = regexp.MustCompile(`^[0-9a-f]{64}$`)

// badSuffix is that of what was set aside.
const badSuffix = ".bad"

// recover reads what an earlier server has left, and finds out what became of it.
// Nothing uses the server meanwhile. If the server's life ends first it returns that error, and
// the next server finds everything as it is.
func (s *Server) recover() error {
	for _, d := range []string{"sandboxes", "containers"} {
		if err := os.MkdirAll(filepath.Join(s.opts.Dir, d), 0o700); err != nil {
			return err
		}
	}
	if err := s.recoverImages(); err != nil {
		return err
	}
	if err := s.recoverSandboxes(); err != nil {
		return err
	}
	return s.recoverContainers()
}

func (s *Server) recoverSandboxes() error {
	dir := filepath.Join(s.opts.Dir, "sandboxes")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		id, isRecord := strings.CutSuffix(e.Name(), ".json")
		switch {
		case strings.HasSuffix(e.Name(), badSuffix):
			continue
		case strings.HasPrefix(e.Name(), "."): // of a write that was cut short
			_ = os.Remove(path)
			continue
		case !isRecord || !idPattern.MatchString(id):
			s.setAside(path, errors.New("not a name of a sandbox"))
			continue
		}
		b := &sandbox{}
		err := supervise.ReadFile(path, &b.rec)
		if err == nil && (b.rec.ID != id || b.rec.Config.GetMetadata() == nil) {
			err = errors.New("it is not this sandbox's record")
		}
		if err != nil {
			s.setAside(path, err)
			continue
		}
		if b.rec.Boot != s.boot {
			b.rec.Stopped = true
		}
		b.told = b.rec.Stopped
		s.sandboxes[id] = b
	}
	return nil
}

func (s *Server) recoverContainers() error {
	dir := filepath.Join(s.opts.Dir, "containers")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if s.life.Err() != nil {
			break
		}
		path := filepath.Join(dir, e.Name())
		switch {
		case strings.HasSuffix(e.Name(), badSuffix):
			continue
		case !e.IsDir() || !idPattern.MatchString(e.Name()):
			s.setAside(path, errors.New("not a name of a container"))
			continue
		}
		var rec containerRecord
		err := supervise.ReadFile(filepath.Join(path, recordFile), &rec)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			// Its making or its removal was cut short; nothing of it can run, for it is recorded
			// before it starts, and removed after it has ended.
			if lock, err := supervise.Lock(path); err == nil {
				_ = os.RemoveAll(path)
				filelock.Unlock(lock)
				continue
			}
			s.abandon(e.Name(), path, err)
			continue
		case err == nil && (rec.ID != e.Name() || rec.Config.GetMetadata() == nil):
			err = errors.New("it is not this container's record")
		case err == nil && s.sandboxes[rec.SandboxID] == nil:
			err = errors.New("its sandbox " + rec.SandboxID + " is not there")
		}
		if err != nil {
			s.abandon(e.Name(), path, err)
			continue
		}
		c := newContainer(rec, path)
		s.containers[rec.ID] = c
		s.recoverResources(c)
		s.adopt(c)
	}
	return s.life.Err()
}

// abandonTries bounds how often is looked whether all of an abandoned container is gone.
const abandonTries = 100

// abandon is for a container of which no record can be read: nobody could ever ask
// for it, so what runs of it is killed, and its directory set aside.
func (s *Server) abandon(id, path string, why error) {
	var st supervise.State
	_ = supervise.ReadFile(filepath.Join(path, supervise.StateFile), &st)
	var spec supervise.Spec
	_ = supervise.ReadFile(filepath.Join(path, supervise.SpecFile), &spec)
	hunt := supervise.NewHunt(id, st.Command, spec.Cgroup)
	defer hunt.End()
	for range abandonTries {
		// A supervisor ends by itself when nothing is left of its tree, and its command dies with it.
		if st.Supervisor.Alive() {
			_ = supervise.Call(s.life, path, supervise.Request{Op: supervise.OpKill}, time.Second)
		}
		if hunt.Pass() && !st.Supervisor.Alive() {
			break
		}
		if !supervise.Pause(s.life, lookAgain) {
			return // not set aside, so the next server goes on
		}
	}
	_ = spec.Cgroup.Remove(s.life)
	s.setAside(path, why)
}

// startPatience is how long a supervisor that an earlier server has started may take
// to execute its command.
const startPatience = 5 * time.Second

// adopt finds out what a recorded container does now.
func (s *Server) adopt(c *container) {
	statePath := filepath.Join(c.dir, supervise.StateFile)
	deadline := time.Now().Add(s.startPatience)
	for {
		var state supervise.State
		stateErr := supervise.ReadFile(statePath, &state)
		var exit supervise.Exit
		if supervise.ReadFile(filepath.Join(c.dir, supervise.ExitFile), &exit) == nil {
			c.end(&exit)
			s.tasks.Go(func() { s.reap(state.Supervisor) })
			return
		}
		lock, err := supervise.Lock(c.dir)
		if err == nil {
			// No supervisor lives: it ended, or there never was one.
			if stateErr != nil {
				// It may have written it in between.
				stateErr = supervise.ReadFile(statePath, &state)
			}
			s.adoptEnded(c, lock, state, stateErr)
			return
		}
		if stateErr == nil {
			if !state.Supervisor.Alive() {
				s.opts.Logger.Info("The lock of a container is held by another process than its supervisor", "container", c.rec.Title)
			}
			s.started(c, state)
			s.tasks.Go(func() { s.watch(c) })
			return
		}
		damaged := !errors.Is(stateErr, fs.ErrNotExist)
		if damaged || time.Now().After(deadline) {
			// It runs but cannot be told from others: the safe thing is to end it.
			if damaged {
				s.setAside(statePath, stateErr)
			}
			s.started(c, state)
			_ = supervise.Call(s.life, c.dir, supervise.Request{Op: supervise.OpKill}, supervisorPatience)
			s.tasks.Go(func() { s.watch(c) })
			return
		}
		if !supervise.Pause(s.life, lookAgain) {
			return
		}
	}
}

// adoptEnded is for a container that no supervisor has.
func (s *Server) adoptEnded(c *container, lock *os.File, state supervise.State, stateErr error) {
	defer filelock.Unlock(lock)
	exitPath := filepath.Join(c.dir, supervise.ExitFile)
	var exit supervise.Exit
	err := supervise.ReadFile(exitPath, &exit)
	switch {
	case err == nil: // written since it was looked for
		state.Supervisor.Reap()
		c.end(&exit)
		return
	case !errors.Is(err, fs.ErrNotExist):
		s.setAside(exitPath, err)
	case errors.Is(stateErr, fs.ErrNotExist) && len(supervise.Orphans(c.rec.ID, supervise.Process{})) == 0:
		return // created, and never started
	}
	if stateErr != nil && !errors.Is(stateErr, fs.ErrNotExist) {
		s.setAside(filepath.Join(c.dir, supervise.StateFile), stateErr)
	}
	state.Supervisor.Reap()
	if exit, done := s.unsupervised(c, state); done {
		c.end(&exit)
	}
}
