package process

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/internal/safefile"
	"github.com/kubeletkit/kubeletkit/runtime/process/internal/supervise"
)

// isID reports whether the text has the form of the results of [newID]. A regular expression
// would be compiled again in each supervisor.
func isID(text string) bool { return len(text) == 64 && strings.Trim(text, "0123456789abcdef") == "" }

// badSuffix is the suffix of files that earlier versions have set aside. They may have the
// secrets of containers, and are removed.
const badSuffix = ".bad"

// recover reads the state that an earlier server has left and finds out what became of the
// containers. Nothing else uses the server at this time. If the server's life ends first,
// recover returns its error, and the next server starts from the same state.
func (s *Server) recover() error {
	for _, d := range []string{"sandboxes", "containers", "links"} {
		if err := os.MkdirAll(filepath.Join(s.opts.Dir, d), 0o700); err != nil {
			return err
		}
	}
	if err := supervise.Sync(s.opts.Dir); err != nil {
		return err
	}
	_ = os.Remove(s.imagesFile() + badSuffix)
	s.removeUnfinished()
	if err := s.recoverImages(); err != nil {
		return err
	}
	if err := s.recoverSandboxes(); err != nil {
		return err
	}
	if err := s.recoverLinks(); err != nil {
		return err
	}
	if err := s.recoverContainers(); err != nil {
		return err
	}
	ready := map[string]bool{}
	for id, b := range s.sandboxes {
		ready[id] = b.state() == criv1.PodSandboxState_SANDBOX_READY
	}
	if _, err := s.cgroups.removeLeft(s.life, func(sandbox string) bool { return ready[sandbox] }); err != nil {
		s.opts.Logger.Error(err, "Cannot remove cgroups of pods that are gone")
	}
	return nil
}

// removeUnfinished removes the files of interrupted writes of the images.
func (s *Server) removeUnfinished() {
	entries, err := os.ReadDir(s.opts.Dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "."+filepath.Base(s.imagesFile())+".") {
			_ = os.Remove(filepath.Join(s.opts.Dir, e.Name()))
		}
	}
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
		case strings.HasPrefix(e.Name(), "."), strings.HasSuffix(e.Name(), badSuffix):
			// of a write that was interrupted, or set aside
			_ = os.RemoveAll(path)
			continue
		case !isRecord || !isID(id):
			s.ignore(path)
			continue
		}
		b := newSandbox(sandboxRecord{})
		err := supervise.ReadFile(path, &b.rec)
		if err == nil && (b.rec.ID != id || b.rec.Config.GetMetadata() == nil) {
			err = errors.New("it is not the record of this sandbox")
		}
		if err != nil {
			s.discard(path, err)
			continue
		}
		if b.rec.Boot != s.boot {
			b.rec.Stopped = true
		}
		b.reported = b.rec.Stopped
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
	s.huntUntil = time.Now().Add(s.huntPatience)
	for _, e := range entries {
		if s.life.Err() != nil {
			break
		}
		path := filepath.Join(dir, e.Name())
		switch {
		case strings.HasSuffix(e.Name(), badSuffix):
			_ = os.RemoveAll(path)
			continue
		case !e.IsDir() || !isID(e.Name()):
			s.ignore(path)
			continue
		}
		var rec containerRecord
		err := supervise.ReadFile(filepath.Join(path, recordFile), &rec)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			// Its creation or its removal was interrupted. No process of it can run: a container
			// is recorded before it starts, and removed after it has ended.
			if lock, err := supervise.Lock(path); err == nil {
				_ = os.RemoveAll(path)
				safefile.Unlock(lock)
				continue
			}
			s.abandon(e.Name(), path, err)
			continue
		case err == nil && (rec.ID != e.Name() || rec.Config.GetMetadata() == nil):
			err = errors.New("it is not the record of this container")
		case err == nil && s.sandboxes[rec.SandboxID] == nil:
			err = errors.New("its sandbox " + rec.SandboxID + " does not exist")
		}
		if err != nil {
			s.abandon(e.Name(), path, err)
			continue
		}
		c := newContainer(rec, path)
		s.containers[rec.ID], s.sandboxes[rec.SandboxID].containers[rec.ID] = c, c
		s.recoverResources(c)
		s.adopt(c)
	}
	known := slices.Collect(maps.Values(s.containers))
	s.tasks.Go(func() {
		for _, c := range known {
			s.syncRecords(c) // the last server may have ended before
		}
	})
	return s.life.Err()
}

// abandonTries is the maximum number of passes of a hunt for an abandoned container.
const abandonTries = 100

// abandon kills a container whose record cannot be read, since no client could stop it, and
// removes its directory. If its processes do not end, the next server continues.
func (s *Server) abandon(id, path string, why error) {
	var st supervise.State
	_ = supervise.ReadFile(filepath.Join(path, supervise.StateFile), &st)
	hunt := supervise.NewHunt(s.environs, supervise.Mark(id), st.Command, st.Cgroup)
	defer hunt.End()
	for tries := 1; ; tries++ {
		// A supervisor ends when no process of its tree is left.
		if st.Supervisor.Alive() {
			_ = supervise.Call(s.life, path, supervise.Request{Op: supervise.OpKill}, time.Second)
		}
		if hunt.Pass() && !st.Supervisor.Alive() {
			break
		}
		if tries == abandonTries {
			s.opts.Logger.Error(why, "The record of a container is damaged, and its processes do not end",
				"container", id)
			return
		}
		if !flow.Sleep(s.life, lookAgain) {
			return
		}
	}
	_ = st.Cgroup.Remove(s.life)
	s.discard(path, why)
}

// startPatience is the time that a supervisor of an earlier server may take to execute its
// command.
const startPatience = 5 * time.Second

// adopt finds out the state of a container that an earlier server has recorded.
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
			// No supervisor lives. It has ended, or there never was one.
			if stateErr != nil {
				// The supervisor may have written the file in between.
				stateErr = supervise.ReadFile(statePath, &state)
			}
			s.adoptEnded(c, lock, state, stateErr)
			return
		}
		if stateErr == nil {
			if !state.Supervisor.Alive() {
				s.opts.Logger.Info("The lock of a container is held by another process than its supervisor",
					"container", c.rec.Title)
			}
			s.started(c, state)
			s.tasks.Go(func() {
				s.limitLog(c)
				s.watch(c)
			})
			return
		}
		damaged := !errors.Is(stateErr, fs.ErrNotExist)
		if damaged || time.Now().After(deadline) {
			// The supervisor runs, but its processes are not known: it has to end the container.
			if damaged {
				s.discard(statePath, stateErr)
			}
			s.started(c, state)
			_ = supervise.Call(s.life, c.dir, supervise.Request{Op: supervise.OpKill}, supervisorPatience)
			s.tasks.Go(func() { s.watch(c) })
			return
		}
		if !flow.Sleep(s.life, lookAgain) {
			return
		}
	}
}

// huntPatience is the time for which a server that starts waits for the end of processes
// without a supervisor, those of all containers together. A process may never end, as while a
// file system does not answer, and a local user can make processes that look like those of a
// container, again and again.
const huntPatience = 5 * time.Second

// adoptEnded is adopt for a container without a supervisor. It unlocks lock. If processes of
// the container do not end soon, it counts as running until they have ended.
func (s *Server) adoptEnded(c *container, lock *os.File, state supervise.State, stateErr error) {
	goesOn := false
	defer func() {
		if !goesOn {
			safefile.Unlock(lock)
		}
	}()
	// No process survives a reboot. What looks like one is of somebody else.
	rebooted := s.sandboxes[c.rec.SandboxID].rec.Boot != s.boot
	exitPath := filepath.Join(c.dir, supervise.ExitFile)
	var exit supervise.Exit
	err := supervise.ReadFile(exitPath, &exit)
	switch {
	case err == nil: // written in between
		state.Supervisor.Reap()
		c.end(&exit)
		return
	case !errors.Is(err, fs.ErrNotExist):
		s.discard(exitPath, err)
	case errors.Is(stateErr, fs.ErrNotExist) &&
		(rebooted || len(supervise.Orphans(s.environs, c.mark, supervise.Process{})) == 0):
		return // created, and never started
	}
	if stateErr != nil && !errors.Is(stateErr, fs.ErrNotExist) {
		s.discard(filepath.Join(c.dir, supervise.StateFile), stateErr)
	}
	state.Supervisor.Reap()
	if rebooted {
		exit := s.lost(c, state)
		c.end(&exit)
		return
	}
	exit, done := s.unsupervised(c, state, s.huntUntil)
	switch {
	case done:
		c.end(&exit)
	case s.life.Err() == nil:
		s.opts.Logger.Info(
			"Processes of a container without a supervisor do not end; the server does not wait for them",
			"container", c.rec.Title)
		s.started(c, state)
		goesOn = true
		s.tasks.Go(func() {
			defer safefile.Unlock(lock)
			s.ended(c, nil)
		})
	}
}
