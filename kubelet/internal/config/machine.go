package config

import (
	"fmt"
	"slices"

	"github.com/spf13/pflag"
	"k8s.io/utils/ptr"
)

// addMachineFlags binds the flags about the machine and the process of the agent.
func (s *Settings) addMachineFlags(fs *pflag.FlagSet) {
	fs.Int32Var(s.OOMScoreAdj, "oom-score-adj", *s.OOMScoreAdj, "the agent's oom_score_adj, from -1000 to 1000")
	fs.Int64Var(&s.MaxOpenFiles, "max-open-files", s.MaxOpenFiles, "files that the agent may have open; the "+
		"embedded runtime keeps the limit of the machine, since containers inherit it")
	fs.BoolVar(&s.ProtectKernelDefaults, "protect-kernel-defaults", s.ProtectKernelDefaults,
		"start only if the kernel's settings are those that kubelet requires; otherwise they are set, except with "+
			"the embedded runtime")
	for name, target := range map[string]**bool{"fail-swap-on": &s.FailSwapOn, "fail-cgroupv1": &s.FailCgroupV1} {
		fs.Var(optionalBool{target}, name, map[string]string{
			"fail-swap-on":  "do not start on a machine with swap",
			"fail-cgroupv1": "do not start on a machine with cgroup v1",
		}[name]+" (default: true with a configuration file and a container runtime, otherwise only a warning)")
		fs.Lookup(name).NoOptDefVal = "true"
	}
}

// machineDefaults are kubelet's.
func machineDefaults(c *KubeletConfiguration) {
	def(&c.OOMScoreAdj, ptr.To[int32](-999))
	def(&c.MaxOpenFiles, 1_000_000)
	def(&c.MemorySwap.SwapBehavior, "NoSwap")
}

// refusals applies kubelet's defaults for what keeps a kubelet from starting: to an agent that has a
// kubelet's configuration, on a container runtime. For others, nil stands for a warning.
func (s *Settings) refusals() {
	if !s.OnMachine() || s.ConfigFile == "" && s.ConfigDir == "" {
		return
	}
	def(&s.FailSwapOn, ptr.To(true))
	def(&s.FailCgroupV1, ptr.To(true))
}

// validateMachine judges as kubelet does.
func (s *Settings) validateMachine() (errs []error) {
	if n := *s.OOMScoreAdj; n < -1000 || n > 1000 {
		errs = append(errs, fmt.Errorf("oomScoreAdj %d: must be between -1000 and 1000", n))
	}
	switch b := s.MemorySwap.SwapBehavior; b {
	case "", "NoSwap", "LimitedSwap":
	default:
		errs = append(errs, fmt.Errorf("memorySwap.swapBehavior %q: must be NoSwap or LimitedSwap", b))
	}
	if s.MaxOpenFiles < 0 {
		errs = append(errs, fmt.Errorf("maxOpenFiles %d: must not be negative", s.MaxOpenFiles))
	}
	return errs
}

// warnMachine adds a warning for what has an effect only with a container runtime.
func (s *Settings) warnMachine(fs *pflag.FlagSet, fields []string) {
	if !s.OnMachine() && (fs.Changed("max-open-files") || slices.Contains(fields, "maxOpenFiles")) {
		s.less("maxOpenFiles has an effect only with a container runtime: containers of the embedded "+
			"runtime inherit the limit", "maxOpenFiles", "--max-open-files")
	}
}
