package oom

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/kubeletkit/kubeletkit/internal/logging"
)

// Counters are the numbers of kills that the kernel keeps for each cgroup. A [Watcher] uses them if the log cannot be
// read. Its methods are called concurrently, except Close.
type Counters interface {
	// Add begins to watch the container of the ID in the cgroup of a pod. It does nothing if the container is watched.
	Add(pod, id string) error
	// Remove ends that. It does nothing if the container is not watched.
	Remove(id string)
	// Wait blocks until the counts of containers may have changed, and returns their IDs, or until ctx ends.
	Wait(ctx context.Context) (ids []string, err error)
	// Read returns the counts of a container. The error is [fs.ErrNotExist] if its cgroup has been removed.
	Read(id string) (Count, error)
	Close() error
}

// Count is what the kernel counts for the cgroup of a container.
type Count struct {
	// Kills is the number of killed processes in it.
	Kills uint64
	// Limit is how often its own limit was reached. It is 0 with cgroup v1, which does not count that.
	Limit uint64
}

// counted is a container whose counts are watched.
type counted struct {
	pod  string // the cgroup of its pod
	last Count
}

// followCounts watches the counts of the containers until ctx ends. cause is why there is no log.
func (w *Watcher) followCounts(ctx context.Context, cause error) {
	if w.opts.PodCgroup == nil {
		logging.Denied(w.log, cause).Info("Kills for lack of memory are not watched, since the log of the "+
			"kernel cannot be read; reasons of containers are those of the runtime", "error", cause.Error())
		return
	}
	c, err := w.opts.Counters()
	if err != nil {
		w.log.Info("Kills for lack of memory are not watched, since the log of the kernel cannot be read, "+
			"and cgroups cannot be watched; reasons of containers are those of the runtime",
			"error", errors.Join(cause, err).Error())
		return
	}
	w.log.Info("The log of the kernel cannot be read; kills for lack of memory are found by the counts in "+
		"the cgroups of containers, without the names of processes, and others are not reported",
		"error", cause.Error())
	for _, p := range w.setCounters(c) {
		w.watch(c, p.cgroup, p.running)
	}
	for ctx.Err() == nil {
		ids, err := c.Wait(ctx)
		if err != nil && ctx.Err() == nil {
			w.log.Error(err,
				"Kills for lack of memory are not watched any more, since cgroups cannot be watched")
			break
		}
		w.reportAll(w.count(ids))
	}
	w.setCounters(nil)
	w.reading.Lock() // an inspection may be reading
	_ = c.Close()
	w.reading.Unlock()
}

// setCounters sets the counters, and returns the pods that are known.
func (w *Watcher) setCounters(c Counters) []podState {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counters, w.counts = c, map[string]counted{}
	pods := make([]podState, 0, len(w.byPod))
	for _, p := range w.byPod {
		pods = append(pods, p)
	}
	return pods
}

// watch watches the counts of containers of a pod. Kills before are those of an earlier agent, except in containers
// that started after this watcher.
func (w *Watcher) watch(c Counters, pod string, running []runningContainer) {
	for _, r := range running {
		w.mu.Lock()
		_, known := w.counts[r.id]
		w.mu.Unlock()
		if known {
			continue
		}
		err := c.Add(pod, r.id)
		var first Count
		if err == nil && !r.started.After(w.began) {
			first, err = c.Read(r.id)
		}
		if err != nil {
			c.Remove(r.id)
			if !errors.Is(err, fs.ErrNotExist) && w.sayOnce() {
				w.log.Error(err, "Kills for lack of memory cannot be watched in a container; it is logged once",
					"container", r.id)
			}
			continue
		}
		w.mu.Lock()
		if _, known := w.counts[r.id]; !known {
			w.counts[r.id] = counted{pod, first}
		}
		w.mu.Unlock()
		w.reportAll(w.count([]string{r.id})) // of a container that started before it was watched
	}
}

func (w *Watcher) sayOnce() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	first := !w.saidCounts
	w.saidCounts = true
	return first
}

// count reads the counts of containers. The kills are attributed to containers when it returns.
func (w *Watcher) count(ids []string) (victims []victim) {
	w.reading.Lock()
	defer w.reading.Unlock()
	w.mu.Lock()
	c := w.counters
	w.mu.Unlock()
	if c == nil {
		return nil
	}
	for _, id := range ids {
		n, err := c.Read(id)
		if errors.Is(err, fs.ErrNotExist) {
			w.unwatch(c, id)
		}
		if err == nil {
			if v, ok := w.grown(id, n); ok {
				victims = append(victims, v)
			}
		}
	}
	return victims
}

// grown keeps the counts of a container. ok means that processes have been killed.
func (w *Watcher) grown(id string, n Count) (v victim, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before, known := w.counts[id]
	if !known || n.Kills <= before.last.Kills {
		return victim{}, false
	}
	k := Kill{Cgroup: before.pod + "/" + id, Counted: int(min(n.Kills-before.last.Kills, maxCounted))}
	if n.Limit > before.last.Limit {
		k.Limit = k.Cgroup
	}
	w.counts[id] = counted{before.pod, n}
	v = victim{kill: k}
	v.owner, v.known = w.owners[id]
	w.containerKills.add(id, k, time.Now(), v.known)
	w.tally(k)
	return v, true
}

// maxCounted bounds the kills that one reading of a count can report.
const maxCounted = 1000

// runningContainer is a container that runs, and when it started.
type runningContainer struct {
	id      string
	started time.Time
}

// follow watches the counts of the containers of a pod that run now, and ends that of those that ran before.
func (w *Watcher) follow(before, now podState) {
	w.mu.Lock()
	c := w.counters
	w.mu.Unlock()
	if c == nil {
		return
	}
	for _, r := range before.running {
		if !slices.ContainsFunc(now.running, func(s runningContainer) bool { return s.id == r.id }) {
			w.unwatch(c, r.id)
		}
	}
	w.watch(c, now.cgroup, now.running)
}

func (w *Watcher) unwatch(c Counters, id string) {
	c.Remove(id)
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.counts, id)
}

// processText names what was killed.
func processText(k Kill) string {
	switch k.Counted {
	case 0:
		return fmt.Sprintf("process %s (pid %d)", k.Process, k.PID)
	case 1:
		return "a process"
	default:
		return fmt.Sprintf("%d processes", k.Counted)
	}
}
