package eviction

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kubeletkit/kubeletkit/internal/logging"
	"github.com/kubeletkit/kubeletkit/node/internal/cgroupfs"
)

// The triggers of pressure stall information (Documentation/accounting/psi.rst): tasks that wait for memory for that
// many microseconds of a window. Without CAP_SYS_RESOURCE, windows are multiples of 2 s.
var pressureTriggers = []string{"some 50000 1000000", "some 100000 2000000"}

const (
	// rearmPeriod is the time between two looks at the levels of version 1 of cgroups, and at cgroups that were not
	// there.
	rearmPeriod = 10 * time.Second
	// leastPause is the time after a signal in which others are one with it.
	leastPause = 50 * time.Millisecond
)

// Watch implements [Sensor] for memory. It uses triggers of pressure stall information, for the machine and for the
// cgroup of all pods, events of that cgroup, and on version 1 of cgroups, notifications about levels of usage. The
// error means that there is none of them, and none can come with the cgroup of all pods.
func (m *Machine) Watch(ctx context.Context, thresholds []Threshold, wake func()) error {
	w := &watch{Machine: m, levels: map[string]level{}}
	for _, t := range thresholds {
		if t.Signal.pressure() == memoryPressure {
			w.thresholds = append(w.thresholds, t)
		}
	}
	if len(w.thresholds) == 0 {
		<-ctx.Done()
		return nil
	}
	var err error
	if w.signals, err = cgroupfs.NewSignals(); err != nil {
		return fmt.Errorf("eviction: %w", err)
	}
	defer func() { _ = w.signals.Close() }()
	missing := w.arm()
	if w.signals.Len() == 0 && m.opts.PodsCgroup == nil {
		return errors.Join(missing...)
	}
	if err := errors.Join(missing...); err != nil {
		logging.Denied(m.opts.Logger, err).Info("Some of the kernel's signals about memory are missing",
			"reason", err.Error())
	}
	for {
		names, err := w.signals.Wait(ctx, time.Now().Add(rearmPeriod))
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("eviction: %w", err)
		}
		if len(names) > 0 {
			wake()
			select {
			case <-ctx.Done():
			case <-time.After(leastPause):
			}
		}
		w.arm()
	}
}

// watch is one call of [Machine.Watch].
type watch struct {
	*Machine
	thresholds []Threshold
	signals    *cgroupfs.Signals
	levels     map[string]level
}

// level is a usage that is to be signaled, in the cgroup with the number inode of its directory.
type level struct {
	usage int64
	inode uint64
}

// arm adds the sources that are missing, and brings the levels up to date. It returns why sources are missing.
func (w *watch) arm() (missing []error) {
	note := func(err error) {
		if err != nil {
			missing = append(missing, err)
		}
	}
	note(w.pressure(filepath.Join(w.opts.proc, "pressure/memory")))
	pods := w.podsCgroup()
	if _, legacy, _ := cgroupfs.Dir(w.opts.cgroup, "memory", "/"); legacy {
		for _, t := range w.thresholds {
			switch {
			case t.Signal == MemoryAvailable:
				note(w.usage(t, "/"))
			case pods != "":
				_ = w.usage(t, pods) // the cgroup is made with the first pod
			}
		}
		return missing
	}
	if pods != "" {
		dir := filepath.Join(w.opts.cgroup, pods)
		_ = w.pressure(filepath.Join(dir, "memory.pressure"))
		_ = w.events(filepath.Join(dir, "memory.events"))
	}
	return missing
}

// pressure adds a trigger of pressure stall information.
func (w *watch) pressure(file string) (err error) {
	if w.signals.Has(file) {
		return nil
	}
	for _, trigger := range pressureTriggers {
		if err = w.signals.AddTrigger(file, file, trigger); err == nil {
			return nil
		}
	}
	return fmt.Errorf("pressure stall information: %w", err)
}

// events adds the events of a cgroup: its limits were reached.
func (w *watch) events(file string) error {
	if w.signals.Has(file) {
		return nil
	}
	return w.signals.AddEvents(file, file)
}

// usage sets a notification of the usage at which the threshold is met, or moves it. Its file descriptor is there from
// the beginning, so that the agent does not need one more when the cgroup is made.
func (w *watch) usage(t Threshold, path string) error {
	name := fmt.Sprintf("%s %s", path, t)
	if !w.signals.Has(name) {
		if err := w.signals.AddNotification(name); err != nil {
			return err
		}
	}
	dir := filepath.Join(w.opts.cgroup, "memory", path)
	var at unix.Stat_t
	if err := unix.Stat(dir, &at); err != nil {
		delete(w.levels, name) // what was set has ended with the cgroup
		return &os.PathError{Op: "stat", Path: dir, Err: err}
	}
	usage, left, err := w.level(t, dir)
	if err != nil || usage == 0 {
		return err
	}
	if set, ok := w.levels[name]; ok && set.inode == at.Ino {
		if abs(set.usage-usage) <= max(1<<20, abs(left)/20) {
			return nil
		}
		if err := w.signals.AddNotification(name); err != nil {
			// the kernel forgets a level only with its file descriptor
			return err
		}
		delete(w.levels, name)
	}
	if err := w.signals.Notify(name, dir, "memory.usage_in_bytes", strconv.FormatInt(usage, 10)); err != nil {
		return err
	}
	w.levels[name] = level{usage, at.Ino}
	return nil
}

// level returns the usage of a cgroup at which the threshold is met, and how far that is; 0 if that is not known now.
func (w *watch) level(t Threshold, dir string) (usage, left int64, err error) {
	used, err := cgroupfs.Number(filepath.Join(dir, "memory.usage_in_bytes"))
	if err != nil {
		return 0, 0, err
	}
	readings := Readings{}
	if t.Signal == MemoryAvailable {
		err = w.memory(readings, time.Now())
	} else {
		err = w.podsMemory(readings, time.Now())
	}
	r, ok := readings[t.Signal]
	if err != nil || !ok {
		return 0, 0, err
	}
	// The rest of the usage stays as it is, as in kubelet: each page more is one less that is available.
	left = r.Available - t.need(r.Capacity, false)
	return max(1, used+left+1), left, nil
}

func abs(n int64) int64 {
	if n < 0 {
		return -n
	}
	return n
}
