package kubelet

import (
	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/config"
	"github.com/kubeletkit/kubeletkit/node/cgroup"
	"github.com/kubeletkit/kubeletkit/node/oom"
	"github.com/kubeletkit/kubeletkit/node/swap"
)

// addMemory adds what pods may use of the node's swap, and what is reported if the kernel kills their processes for
// lack of memory. cgroups is nil if pods have none. It returns the number of such kills at the limit of a cgroup.
func addMemory(opts *kubeletkit.Options, s *config.Settings,
	cgroups *cgroup.Pods) (killed func(cgroup string) uint64, err error) {
	limiter, err := swap.New(swap.Options{Behavior: swap.Behavior(s.MemorySwap.SwapBehavior)})
	if err != nil {
		return nil, err
	}
	var oopts oom.Options
	if cgroups != nil {
		oopts.PodCgroup = cgroups.Parent
	}
	watcher, err := oom.New(oopts)
	if err != nil {
		return nil, err
	}
	opts.Join = append(opts.Join, limiter, watcher)
	return watcher.Events, nil
}
