package node

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	goruntime "runtime"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// MachineOptions are the options of [NewMachine].
type MachineOptions struct {
	// StorageDir is a directory of the file system for ephemeral storage: the root directory of
	// the agent. It may be missing. If empty, ephemeral storage is not reported.
	StorageDir string
	// MaxPods is the number of pods of the node. Default 110; a negative number is 0.
	MaxPods int
	// PodsPerCore limits the pods further, to that many for each processor; 0 does not.
	PodsPerCore int
	// UserNamespace reports whether this process is in another user namespace than the initial one
	// (runningInUserNamespace).
	UserNamespace bool

	root string // of the files that are read; for tests
}

// Machine is an [Info] and a [Resources]: the machine that the agent runs on, as the files in
// /etc, /proc and /sys describe it. What they do not have is empty.
//
// cAdvisor has the same sources, so that the values are kubelet's.
type Machine struct {
	opts  MachineOptions
	facts func() v1.NodeSystemInfo // read once: none of them changes while the machine runs
}

var (
	_ Info      = (*Machine)(nil)
	_ Resources = (*Machine)(nil)
)

// NewMachine returns the machine. It reads nothing before the first call of a method.
func NewMachine(opts MachineOptions) *Machine {
	if opts.MaxPods == 0 {
		opts.MaxPods = 110
	}
	opts.MaxPods = max(0, opts.MaxPods)
	return &Machine{opts: opts, facts: sync.OnceValue(func() v1.NodeSystemInfo { return readFacts(opts.root) })}
}

// cgroupV1Warning is the message of kubelet's event CgroupV1 (cm.CgroupV1DeprecatedWarning).
const cgroupV1Warning = "cgroup v1 detected. cgroup v1 support is deprecated and will be removed in a future release. " +
	"Please migrate to cgroup v2. More information at " +
	"https://git.k8s.io/enhancements/keps/sig-node/5573-remove-cgroup-v1"

// hasCgroupV1 reports whether the machine has hierarchies of cgroup v1, also beside the one of v2.
func (m *Machine) hasCgroupV1() bool {
	mount := filepath.Join(m.opts.root, "/sys/fs/cgroup")
	if _, err := os.Stat(filepath.Join(mount, "cgroup.controllers")); !errors.Is(err, os.ErrNotExist) {
		return false // v2 alone: its root has this file
	}
	entries, err := os.ReadDir(mount)
	return err == nil && len(entries) > 0
}

// NodeInfo implements [Info]. Its error is always nil.
func (m *Machine) NodeInfo(context.Context) (v1.NodeSystemInfo, error) {
	info := m.facts()
	if info.Swap != nil {
		info.Swap = info.Swap.DeepCopy()
	}
	if m.opts.UserNamespace {
		info.RunningInUserNamespace = inUserNamespace(m.opts.root)
	}
	info.OperatingSystem, info.Architecture = goruntime.GOOS, goruntime.GOARCH
	return info, nil
}

// NodeResources implements [Resources]: processors, memory, huge pages, ephemeral storage and
// the number of pods. Huge pages are read anew each time, since an administrator can change
// them.
func (m *Machine) NodeResources(context.Context) (capacity, _ v1.ResourceList, err error) {
	cores := coreCount(m.opts.root)
	pods := m.opts.MaxPods
	if m.opts.PodsPerCore > 0 {
		pods = min(pods, cores*m.opts.PodsPerCore)
	}
	capacity = v1.ResourceList{
		v1.ResourceCPU:  *resource.NewMilliQuantity(int64(cores)*1000, resource.DecimalSI),
		v1.ResourcePods: *resource.NewQuantity(int64(pods), resource.DecimalSI),
	}
	return capacity, nil, readCapacity(m.opts, capacity)
}
