package process

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/runtime/process/internal/supervise"
)

// leftPatience is the time in which processes in cgroups that are left must end.
const leftPatience = 5 * time.Second

// removeLeft kills what is in the cgroups of pods of this directory, except for those with a sandbox that stays,
// and removes the cgroups. It returns the number of these pods. As a rule there are none: a sandbox that is
// stopped removes its own.
func (r *cgroupRoot) removeLeft(ctx context.Context, stays func(sandbox string) bool) (pods int, err error) {
	left := map[string]bool{}
	for _, dir := range r.roots() {
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			if id, own := strings.CutPrefix(e.Name(), r.owner); own && isID(id) && e.IsDir() && !stays(id) {
				left[id] = true
			}
		}
	}
	if len(left) == 0 {
		return 0, nil
	}
	if pid := lockedBy(r.lock); pid != 0 {
		return 0, fmt.Errorf("%w %s: process %d has its lock, as the server of a directory that was deleted, or of "+
			"one of that name in another mount namespace", ErrInUse, filepath.Dir(r.lock), pid)
	}
	ctx, cancel := context.WithTimeout(ctx, leftPatience)
	defer cancel()
	var errs []error
	for id := range left {
		pod := r.ofPod(id)
		all := append(containersIn(pod), pod)
		if slices.ContainsFunc(all, supervise.Cgroup.Foreign) {
			errs = append(errs,
				fmt.Errorf("the cgroups of sandbox %s have processes of another PID namespace, and stay", id))
			continue
		}
		for _, c := range all {
			for c.Kill() > 0 && flow.Sleep(ctx, lookAgain) {
			}
		}
		if err := pod.Remove(ctx); err != nil {
			errs = append(errs, fmt.Errorf("removing the cgroups of sandbox %s: %w", id, err))
		}
	}
	return len(left), errors.Join(errs...)
}

// lockedBy returns another process that has the lock file of that path open, also if the file was deleted; 0 if there
// is none.
func lockedBy(path string) int {
	links, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, link := range links {
		to, err := os.Readlink(link)
		if err != nil || to != path && to != path+" (deleted)" {
			continue
		}
		pid, err := strconv.Atoi(strings.Split(link, "/")[2])
		if err == nil && pid != os.Getpid() {
			return pid
		}
	}
	return 0
}

// containersIn returns the cgroups in those of a pod.
func containersIn(pod supervise.Cgroup) (all []supervise.Cgroup) {
	seen := map[string]bool{}
	for _, dir := range append([]string{pod.V2}, slices.Collect(maps.Values(pod.V1))...) {
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			if e.IsDir() && !seen[e.Name()] {
				seen[e.Name()] = true
				all = append(all, within(pod, e.Name()))
			}
		}
	}
	return all
}

// roots returns the directory that has the cgroups of pods, in each hierarchy.
func (r *cgroupRoot) roots() (dirs []string) {
	if r.off {
		return nil
	}
	for _, controller := range append(cgroupControllers[:], "") {
		if dir := r.dir(controller, ""); dir != "" {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// removeRoot removes the cgroup that has those of pods if it is the default one, and empty.
func (r *cgroupRoot) removeRoot() {
	if r.root != defaultRoot {
		return // somebody else's: it may have limits
	}
	for _, dir := range r.roots() {
		_ = unix.Rmdir(dir) // not while a pod of any server is in it
	}
}
