package host

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/kubelet/internal/config"
)

// Facts are what was read of the machine and of this process. The zero value is a machine about
// which nothing is known.
type Facts struct {
	// Root is true if this process is root's.
	Root bool
	// Swap is true if the machine has swap that is on.
	Swap bool
	// Noswap is true if file systems in memory can be kept out of swap.
	Noswap bool
	// CgroupV1 is true unless the cgroups of the machine are those of version 2 only.
	CgroupV1 bool
	// Kernel are the values of the settings of the kernel, by their paths below /proc/sys. Those
	// that cannot be read are missing.
	Kernel map[string]string
	// OOMScoreAdj is that of this process; "" if it is unknown.
	OOMScoreAdj string
	// OpenFiles is the limit of files that this process may have open, which its children inherit;
	// 0 if it is unknown.
	OpenFiles uint64
	// UserNamespace is true if this process is in another user namespace than the initial one. KernelLog is then
	// why the log of the kernel cannot be read, or nil.
	UserNamespace bool
	KernelLog     error
}

// A Write is a value for a file of the kernel.
type Write struct {
	Path, Value string
}

// Plan is what follows from the settings and the facts.
type Plan struct {
	// Refused are the reasons for which the agent must not start.
	Refused []error
	// Warnings are differences that a kubelet would not accept, or that weaken a pod's security.
	Warnings []string
	// Writes are the files of the kernel to write.
	Writes []Write
	// OpenFiles is the limit of open files to set; 0 if it stays.
	OpenFiles uint64
}

// kernel are the settings of the kernel that kubelet requires (setupKernelTunables in
// pkg/kubelet/cm), by their paths below /proc/sys.
func kernel() map[string]string {
	return map[string]string{
		"vm/overcommit_memory":      "1",
		"vm/panic_on_oom":           "0",
		"kernel/panic":              "10",
		"kernel/panic_on_oops":      "1",
		"kernel/keys/root_maxkeys":  "1000000",
		"kernel/keys/root_maxbytes": "25000000",
	}
}

// Decide returns what follows from the settings on a machine with these facts.
//
// The embedded runtime may run on a machine that is no node, so it changes no setting of the
// kernel; its containers inherit the limit of open files, which stays for that reason.
func Decide(s *config.Settings, f Facts) (p Plan) {
	var accepted []string
	refuse := func(there bool, setting *bool, field, what string) {
		switch {
		case !there:
		case setting == nil: // not given, and no kubelet's configuration
			accepted = append(accepted, what+" ("+field+")")
		case *setting:
			p.Refused = append(p.Refused, fmt.Errorf("%s: %s; remove it, or set %s to false", field, what, field))
		}
	}
	refuse(f.Swap, s.FailSwapOn, "failSwapOn", "swap is on")
	refuse(f.CgroupV1, s.FailCgroupV1, "failCgroupV1", "the machine has cgroup v1")
	if f.CgroupV1 && s.SingleProcessOOMKill != nil && !*s.SingleProcessOOMKill {
		p.Refused = append(p.Refused, errors.New("singleProcessOOMKill: false needs cgroup v2, and the machine has "+
			"cgroup v1; remove it"))
	}
	if len(accepted) > 0 && s.OnMachine() {
		p.Warnings = append(p.Warnings, "A kubelet would not start on this machine: "+strings.Join(accepted, ", "))
	}
	if f.Swap && !ptr.Deref(s.FailSwapOn, false) && !f.Noswap {
		p.Warnings = append(p.Warnings, "Swap is on, and this kernel has no tmpfs option noswap: secrets and other "+
			"volumes in memory may be written to the disk")
	}
	if f.CgroupV1 && s.MemorySwap.SwapBehavior == "LimitedSwap" {
		p.Warnings = append(p.Warnings, "memorySwap.swapBehavior LimitedSwap has no effect on a machine with cgroup "+
			"v1: containers get no swap")
	}
	if f.CgroupV1 && (s.MemoryThrottlingFactor != nil || s.MemoryReservationPolicy == "TieredReservation") {
		p.Warnings = append(p.Warnings, "memoryThrottlingFactor and memoryReservationPolicy have no effect on a "+
			"machine with cgroup v1")
	}
	p.kernel(s, f)
	p.userNamespace(s, f)
	if score := strconv.Itoa(int(*s.OOMScoreAdj)); f.OOMScoreAdj != "" && f.OOMScoreAdj != score &&
		(s.OnMachine() || s.Embedded || s.Has("oomScoreAdj", "--oom-score-adj")) {
		p.Writes = append(p.Writes, Write{oomScoreFile, score})
	}
	if limit := uint64(s.MaxOpenFiles); s.OnMachine() && f.OpenFiles != 0 && f.OpenFiles != limit {
		p.OpenFiles = limit
	}
	return p
}

const (
	oomScoreFile = "/proc/self/oom_score_adj"
	sysctls      = "/proc/sys/"
)

func (p *Plan) kernel(s *config.Settings, f Facts) {
	if f.Kernel == nil || !s.OnMachine() && !s.ProtectKernelDefaults {
		return
	}
	required := kernel()
	for _, name := range slices.Sorted(maps.Keys(required)) {
		value, readable := f.Kernel[name]
		dotted := strings.ReplaceAll(name, "/", ".")
		switch {
		case value == required[name]:
		case !s.ProtectKernelDefaults:
			p.Writes = append(p.Writes, Write{sysctls + name, required[name]})
		case !readable:
			p.Refused = append(p.Refused, fmt.Errorf("protectKernelDefaults: sysctl %s cannot be read", dotted))
		default:
			p.Refused = append(p.Refused, fmt.Errorf("protectKernelDefaults: sysctl %s is %s, and must be %s", dotted,
				value, required[name]))
		}
	}
}

// userNamespace refuses what kubelet refuses in a user namespace without the feature gate. The settings of the kernel
// belong to the initial namespace, so writes of them fail.
func (p *Plan) userNamespace(s *config.Settings, f Facts) {
	if !f.UserNamespace || s.InUserNamespace() || !s.OnMachine() {
		return
	}
	var missing []string
	if len(p.Writes) > 0 {
		var names []string
		for _, w := range p.Writes {
			names = append(names, w.String())
		}
		missing = append(missing, "set "+strings.Join(names, ", "))
	}
	if f.KernelLog != nil {
		missing = append(missing, fmt.Sprintf("read the log of the kernel (%v)", f.KernelLog))
	}
	if len(missing) > 0 {
		p.Refused = append(p.Refused, fmt.Errorf("the agent runs in a user namespace, and cannot %s; remove the feature "+
			"gate %s=false", strings.Join(missing, ", nor "), config.UserNamespaceGate))
	}
}

// String returns the setting, such as oom_score_adj -999.
func (w Write) String() string {
	name, isSysctl := strings.CutPrefix(w.Path, sysctls)
	if isSysctl {
		return strings.ReplaceAll(name, "/", ".") + "=" + w.Value
	}
	return "oom_score_adj=" + w.Value
}

// Apply sets what the plan has to set by the functions, and returns an error with all that could
// not be set.
func (p Plan) Apply(write func(path, value string) error, openFiles func(uint64) error) error {
	var failed, causes []string
	try := func(what string, err error) {
		if err == nil {
			return
		}
		failed = append(failed, what)
		for u := errors.Unwrap(err); u != nil; u = errors.Unwrap(u) {
			err = u // without the path
		}
		if !slices.Contains(causes, err.Error()) {
			causes = append(causes, err.Error())
		}
	}
	for _, w := range p.Writes {
		try(w.String(), write(w.Path, w.Value))
	}
	if p.OpenFiles > 0 {
		try(fmt.Sprintf("open files=%d", p.OpenFiles), openFiles(p.OpenFiles))
	}
	if len(failed) == 0 {
		return nil
	}
	return fmt.Errorf("cannot set %s: %s", strings.Join(failed, ", "), strings.Join(causes, "; "))
}
