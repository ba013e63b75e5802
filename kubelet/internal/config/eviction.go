package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/kubeletkit/kubeletkit/node/eviction"
)

// evictionFields are the fields of evictions.
const evictionFields = `evictionHard evictionSoft evictionSoftGracePeriod evictionMinimumReclaim evictionPressureTransitionPeriod evictionMaxPodGracePeriod
	mergeDefaultEvictionSettings`

// hardField is the field of the hard thresholds.
const hardField = "evictionHard"

// addEvictionFlags binds the flags of evictions.
func (s *Settings) addEvictionFlags(fs *pflag.FlagSet) {
	fs.Var(cliflag.NewLangleSeparatedMapStringString(&s.EvictionHard), "eviction-hard", "thresholds below which a "+
		"pod is evicted at once, as in memory.available<100Mi,nodefs.available<10%; they are not allocatable")
	fs.Var(cliflag.NewLangleSeparatedMapStringString(&s.EvictionSoft), "eviction-soft",
		"thresholds below which a pod is evicted after a grace period, as in memory.available<1.5Gi")
	fs.Var(cliflag.NewMapStringString(&s.EvictionSoftGracePeriod), "eviction-soft-grace-period",
		"grace periods of the soft thresholds, as in memory.available=1m30s")
	fs.Var(cliflag.NewMapStringString(&s.EvictionMinimumReclaim), "eviction-minimum-reclaim",
		"what has to be available above a threshold once it was met, as in imagefs.available=2Gi")
	fs.DurationVar(&s.EvictionPressureTransitionPeriod.Duration, "eviction-pressure-transition-period",
		s.EvictionPressureTransitionPeriod.Duration, "time until a condition such as MemoryPressure is over")
	fs.Int32Var(&s.EvictionMaxPodGracePeriod, "eviction-max-pod-grace-period", s.EvictionMaxPodGracePeriod,
		"longest grace period of a pod that is evicted for a soft threshold, in seconds; negative for that of the pod")
}

// evictionDefaults are kubelet's. A kubelet without a configuration file has no hard thresholds.
func evictionDefaults(c *KubeletConfiguration) {
	def(&c.EvictionPressureTransitionPeriod.Duration, 5*time.Minute)
	if c.EvictionHard == nil {
		c.EvictionHard = eviction.DefaultHard()
	}
}

// mergeHardDefaults fills the default hard thresholds in the content of a main file. As in kubelet, drop-ins patch the
// result, so that mergeDefaultEvictionSettings counts only in the main file.
func mergeHardDefaults(content map[string]any) {
	hard, given := content[hardField].(map[string]any)
	if merge, _ := content["mergeDefaultEvictionSettings"].(bool); given && !merge {
		return
	}
	all := map[string]any{}
	for signal, threshold := range eviction.DefaultHard() {
		all[signal] = threshold
	}
	maps.Copy(all, hard)
	content[hardField] = all
}

// Thresholds returns those of evictions. With enforceNodeAllocatable, the hard one of memory counts for all pods
// together, too.
func (s *Settings) Thresholds() ([]eviction.Threshold, error) {
	return eviction.Parse(eviction.Config{
		Hard: s.EvictionHard, Soft: s.EvictionSoft, SoftGracePeriod: s.EvictionSoftGracePeriod,
		MinimumReclaim: s.EvictionMinimumReclaim,
		Allocatable:    slices.Contains(s.EnforceNodeAllocatable, "pods"),
	})
}

// EvictStatic reports whether static pods may be evicted. Without an API server all pods are static; then they are if
// a threshold was given. A kubelet never evicts them.
func (s *Settings) EvictStatic() bool {
	return s.Kubeconfig == "" && slices.ContainsFunc(s.Given, func(g Given) bool {
		return slices.Contains([]string{hardField, "evictionSoft", "--eviction-hard", "--eviction-soft"}, g.Name)
	})
}

// warnEviction adds a warning for thresholds that have no effect.
func (s *Settings) warnEviction() {
	var names []string
	for _, list := range []map[string]string{s.EvictionHard, s.EvictionSoft} {
		for _, name := range slices.Sorted(maps.Keys(list)) {
			if strings.HasPrefix(name, "containerfs.") {
				names = append(names, name)
			}
		}
	}
	if len(names) > 0 {
		s.less(fmt.Sprintf("thresholds of %s: no effect, as in kubelet: writable layers have the thresholds of "+
			"nodefs or imagefs", strings.Join(slices.Compact(names), ", ")), hardField, "evictionSoft")
	}
}
