package eviction

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/kubeletkit/kubeletkit/internal/logging"
	"github.com/kubeletkit/kubeletkit/internal/safefile"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// MachineOptions are the settings of a [Machine].
type MachineOptions struct {
	// RootDir is the root directory of the agent. Its file system is nodefs.
	RootDir string
	// Images returns the file systems of images and of writable layers, as a [runtime.ImageService] does. nil: imagefs
	// is not read.
	Images func(ctx context.Context) (runtime.ImageFsInfo, error)
	// PodsCgroup returns the cgroup of all pods, as in "/kubepods"; "" as long as it is not known. Its limit of memory
	// is the capacity of allocatableMemory.available. Without a limit, the signal is not read. nil: it is not read.
	PodsCgroup func() string
	// Logger. Default: that of package slog.
	Logger logr.Logger

	// proc and cgroup are /proc and /sys/fs/cgroup in tests.
	proc, cgroup string
}

// Machine is the default [Sensor]. It reads /proc, cgroups and file systems.
type Machine struct {
	opts MachineOptions
	mu   sync.Mutex
	// images is the last answer of Options.Images, imagesAt when it was requested, and imagesErr its error.
	images    runtime.ImageFsInfo
	imagesAt  time.Time
	imagesErr error
}

var _ Sensor = (*Machine)(nil)

// NewMachine returns a sensor for this machine. It reads nothing.
func NewMachine(opts MachineOptions) (*Machine, error) {
	opts.Logger = logging.OrDefault(opts.Logger)
	if opts.RootDir != "" && !filepath.IsAbs(opts.RootDir) {
		return nil, fmt.Errorf("eviction: MachineOptions.RootDir %q must be an absolute path", opts.RootDir)
	}
	if opts.proc == "" {
		opts.proc = "/proc"
	}
	if opts.cgroup == "" {
		opts.cgroup = "/sys/fs/cgroup"
	}
	return &Machine{opts: opts}, nil
}

// Read implements [Sensor].
func (m *Machine) Read(ctx context.Context, thresholds []Threshold) (Readings, error) {
	out := Readings{}
	var errs []error
	done := map[string]bool{} // sources that were read
	for _, t := range thresholds {
		source := t.Signal.source()
		if done[source] {
			continue
		}
		done[source] = true
		now := time.Now()
		var err error
		switch source {
		case "memory":
			err = m.memory(out, now)
		case "allocatableMemory":
			err = m.podsMemory(out, now)
		case "pid":
			err = m.tasks(out, now)
		case "nodefs":
			if m.opts.RootDir != "" {
				err = out.disk(m.opts.RootDir, NodeFsAvailable, NodeFsInodesFree, now)
			}
		case "imagefs":
			if m.opts.Images != nil {
				err = m.imageFs(ctx, out, now)
			}
		case "containerfs": // that of nodefs or of imagefs
		default:
			err = errors.New("there is no such signal")
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", source, err))
		}
	}
	return out, errors.Join(errs...)
}

// source is what has to be read for the signal: the name before the dot.
func (s Signal) source() string {
	name, _, _ := strings.Cut(string(s), ".")
	return name
}

// memory reads what is free, or can be made free at once (kubelet: the working set is what is in use without inactive
// files).
func (m *Machine) memory(out Readings, now time.Time) error {
	text, err := os.ReadFile(filepath.Join(m.opts.proc, "meminfo"))
	if err != nil {
		return err
	}
	total, ok1 := keyed(string(text), "MemTotal:")
	free, ok2 := keyed(string(text), "MemFree:")
	inactive, _ := keyed(string(text), "Inactive(file):")
	if !ok1 || !ok2 {
		return errors.New("/proc/meminfo has no MemTotal or no MemFree")
	}
	out[MemoryAvailable] = Reading{Available: min(total, free+inactive), Capacity: total, At: now}
	return nil
}

// podsMemory reads what pods may still use together.
func (m *Machine) podsMemory(out Readings, now time.Time) error {
	pods := m.podsCgroup()
	if pods == "" {
		return nil
	}
	limit, used, err := memoryOf(m.opts.cgroup, pods)
	if err != nil || limit == math.MaxInt64 {
		return nil // it is made with the first pod; kubelet has no signal without a limit, either
	}
	out[AllocatableMemoryAvailable] = Reading{Available: max(0, limit-used), Capacity: limit, At: now}
	return nil
}

// podsCgroup returns the cgroup of all pods; "" if it is not known.
func (m *Machine) podsCgroup() string {
	if m.opts.PodsCgroup == nil {
		return ""
	}
	return m.opts.PodsCgroup()
}

// tasks reads how many processes and threads there may be.
func (m *Machine) tasks(out Readings, now time.Time) error {
	read := func(name string) string {
		text, _ := os.ReadFile(filepath.Join(m.opts.proc, name))
		return strings.TrimSpace(string(text))
	}
	limit, err := strconv.ParseInt(read("sys/kernel/pid_max"), 10, 64)
	if err != nil {
		return fmt.Errorf("the largest process ID: %w", err)
	}
	if threads, err := strconv.ParseInt(read("sys/kernel/threads-max"), 10, 64); err == nil {
		limit = min(limit, threads)
	}
	fields := strings.Fields(read("loadavg")) // as in "0.20 0.18 0.12 1/80 11206"
	if len(fields) < 4 {
		return errors.New("/proc/loadavg has no number of tasks")
	}
	_, all, _ := strings.Cut(fields[3], "/")
	n, err := strconv.ParseInt(all, 10, 64)
	if err != nil {
		return fmt.Errorf("the number of tasks: %w", err)
	}
	out[PIDAvailable] = Reading{Available: max(0, limit-n), Capacity: limit, At: now}
	return nil
}

// disk reads the file system of a directory. One without a number of inodes has no reading of them.
func (r Readings) disk(dir string, bytes, inodes Signal, now time.Time) error {
	size, err := safefile.DiskSizeAt(dir)
	if err != nil {
		return err
	}
	if size.Capacity > 0 {
		r[bytes] = Reading{Available: int64(min(size.Available, maxAmount)),
			Capacity: int64(min(size.Capacity, maxAmount)), At: now}
	}
	if size.Inodes > 0 {
		r[inodes] = Reading{Available: int64(min(size.InodesFree, maxAmount)),
			Capacity: int64(min(size.Inodes, maxAmount)), At: now}
	}
	return nil
}

// The times after which the runtime is asked again for the file system of images: if this process sees the directory,
// only its place is needed, and otherwise the runtime's figures are.
const (
	seenImagesPeriod   = 5 * time.Minute
	unseenImagesPeriod = 10 * time.Second
)

// imageInfo returns the file systems of images. It asks the runtime once in a while.
func (m *Machine) imageInfo(ctx context.Context) (runtime.ImageFsInfo, time.Time, error) {
	m.mu.Lock()
	info, at, err := m.images, m.imagesAt, m.imagesErr
	m.mu.Unlock()
	period := unseenImagesPeriod
	if err == nil && seen(info.Images.Mountpoint) {
		period = seenImagesPeriod
	}
	if !at.IsZero() && time.Since(at) < period {
		return info, at, err
	}
	at = time.Now()
	limited, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	now, err := m.opts.Images(limited)
	if err == nil {
		info = now
	} else if !errors.Is(err, errors.ErrUnsupported) && seen(info.Images.Mountpoint) {
		err = nil // the directory is where it was; a runtime that has no space may not answer
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.images, m.imagesAt, m.imagesErr = info, at, err
	return info, at, err
}

// seen reports whether this process sees the directory.
func seen(dir string) bool {
	if !filepath.IsAbs(dir) {
		return false
	}
	_, err := os.Stat(dir)
	return err == nil
}

// imageFs reads the file system of images.
func (m *Machine) imageFs(ctx context.Context, out Readings, now time.Time) error {
	info, at, err := m.imageInfo(ctx)
	if errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	if err != nil {
		return err
	}
	if seen(info.Images.Mountpoint) {
		return out.disk(info.Images.Mountpoint, ImageFsAvailable, ImageFsInodesFree, now)
	}
	if info.Images.CapacityBytes > 0 {
		out[ImageFsAvailable] = Reading{Available: max(0, min(info.Images.AvailableBytes, info.Images.CapacityBytes)),
			Capacity: info.Images.CapacityBytes, At: at}
	}
	return nil
}

// Layout implements [Sensor]. Without a runtime that has images there is one disk.
func (m *Machine) Layout(ctx context.Context) (Layout, error) {
	if m.opts.Images == nil || m.opts.RootDir == "" {
		return OneDisk, nil
	}
	info, _, err := m.imageInfo(ctx)
	if errors.Is(err, errors.ErrUnsupported) {
		return OneDisk, nil
	}
	if err != nil {
		return OneDisk, err
	}
	root, err := device(m.opts.RootDir)
	if err != nil {
		return OneDisk, err
	}
	images, err := device(info.Images.Mountpoint)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return ImageDisk, nil // of another machine, or in another mount namespace
	case err != nil:
		return OneDisk, err
	case images == root:
		return OneDisk, nil
	}
	if info.Containers != nil {
		if layers, err := device(info.Containers.Mountpoint); err == nil && layers == root {
			return SplitDisk, nil
		}
	}
	return ImageDisk, nil
}

// keyed returns a number of a file with lines of a name and a number, in bytes if the unit is kB.
func keyed(text, name string) (int64, bool) {
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(line, name)
		if !ok || rest == "" || rest[0] != ' ' && rest[0] != '\t' {
			continue
		}
		fields := strings.Fields(rest)
		if len(fields) == 0 {
			return 0, false
		}
		n, err := strconv.ParseInt(fields[0], 10, 64)
		if err != nil || n < 0 {
			return 0, false
		}
		if len(fields) > 1 && fields[1] == "kB" {
			if n > math.MaxInt64>>10 {
				return 0, false
			}
			n <<= 10
		}
		return n, true
	}
	return 0, false
}
