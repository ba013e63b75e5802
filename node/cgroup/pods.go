package cgroup

import (
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// Options are the settings of [Pods]. The zero value is kubelet's default.
type Options struct {
	// Root is the cgroup that has those of pods below it, as a path with the driver
	// cgroupfs (kubelet's cgroupRoot). Default "/".
	Root string
	// Driver returns the driver of the runtime, see [runtime.Features]; "" if the runtime
	// does not report it. It must not block. Default: the runtime reports none.
	Driver func() string
	// DefaultDriver is the driver of a runtime that reports none (kubelet's cgroupDriver).
	// Default [Cgroupfs], as in kubelet.
	DefaultDriver Driver
	// MountPoint is where the kernel's cgroups are mounted. Default /sys/fs/cgroup.
	MountPoint string
}

// Pods are the cgroups of the pods of a node. Make one with [New]. It is safe for
// concurrent use.
type Pods struct {
	root   []string
	driver func() string
	def    Driver
	mount  string
}

// New returns the cgroups of pods, or an error that names the options that are wrong. It
// reads and changes nothing.
func New(opts Options) (*Pods, error) {
	root, err := parseRoot(opts.Root)
	if opts.DefaultDriver == "" {
		opts.DefaultDriver = Cgroupfs
	}
	if d := opts.DefaultDriver; d != Cgroupfs && d != Systemd {
		err = errors.Join(err, fmt.Errorf("%w: %q", errDriver, d))
	}
	if err != nil {
		return nil, fmt.Errorf("cgroup: %w", err)
	}
	if opts.Driver == nil {
		opts.Driver = func() string { return "" }
	}
	if opts.MountPoint == "" {
		opts.MountPoint = "/sys/fs/cgroup"
	}
	return &Pods{root: root, driver: opts.Driver, def: opts.DefaultDriver, mount: opts.MountPoint}, nil
}

// Parent returns the cgroup of the pod, in the form that the runtime expects as the parent
// of its containers.
func (p *Pods) Parent(pod *v1.Pod) string {
	return p.current().path(podCgroup(p.root, classOf(pod), pod.UID))
}

// current returns the driver of the runtime as far as it is known.
func (p *Pods) current() Driver {
	if driver := Driver(p.driver()); driver != "" {
		return driver
	}
	return p.def
}

// Usable returns why this process cannot make cgroups, or nil.
func (p *Pods) Usable() error { return kernelTree(p.mount).usable(p.current()) }

// above returns the cgroup of a class, in the form of the driver.
func (p *Pods) above(driver Driver, class string) string {
	return driver.path(classCgroup(p.root, class))
}

// Above returns the cgroups above those of pods, in the form that [Pods.Parent] has: first that of all pods, then those
// of the classes Burstable and BestEffort.
func (p *Pods) Above() []string {
	driver := p.current()
	var out []string
	for _, class := range classes() {
		out = append(out, p.above(driver, class))
	}
	return out
}

// Pods returns the UIDs of the pods that have a cgroup of the driver of the runtime, in any
// order. Those of other agents below the same root are among them.
func (p *Pods) Pods() ([]types.UID, error) {
	return list(p.mount, p.root, p.current())
}

// Remove removes the cgroup of the pod, and empty cgroups of its containers. A cgroup with processes stays, so
// that [Pods.Pods] returns it again. That is no error, nor is a cgroup that does not exist, or that this process may
// not remove. With the driver [Systemd] the slice is stopped.
func (p *Pods) Remove(uid types.UID) error {
	if !podspec.IsFileName(uid) {
		return fmt.Errorf("cgroup: UID %.64q cannot be part of the name of a cgroup", string(uid))
	}
	if err := remove(p.mount, p.root, p.current(), uid); err != nil {
		return fmt.Errorf("cgroup: %w", err)
	}
	return nil
}

// RemoveGone removes the cgroups of all pods for which gone returns true, as [Pods.Remove] does, in
// one pass over the cgroups. It does not call [Pods.Remove], so a type that embeds Pods overrides
// both. It returns the pods that had a cgroup, each with the reason why one stays, or nil. The error
// joins those that were not expected; the other cgroups are removed all the same.
func (p *Pods) RemoveGone(gone func(uid types.UID) bool) (map[types.UID]error, error) {
	found, err := removeGone(p.mount, p.root, p.current(), gone)
	if err != nil {
		err = fmt.Errorf("cgroup: %w", err)
	}
	return found, err
}

// RemoveAbove removes the cgroups above those of pods, as far as nothing is in them: for a node whose pods have
// all ended for good. A [Manager] makes them again. It is no error that one stays.
func (p *Pods) RemoveAbove() error {
	if err := removeAbove(p.mount, p.root, p.current()); err != nil {
		return fmt.Errorf("cgroup: %w", err)
	}
	return nil
}
