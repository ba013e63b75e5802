package main

import (
	"context"
	"path"
	"slices"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kubeletkit/kubeletkit"
	clusternode "github.com/kubeletkit/kubeletkit/cluster/node"
	"github.com/kubeletkit/kubeletkit/examples/minikubelet/internal/config"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/node/cgroup"
	"github.com/kubeletkit/kubeletkit/node/eviction"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// evictions are the evictions of an agent under pressure. What they have is set by kubeletkit.New.
type evictions struct {
	manager *eviction.Manager
	agent   *kubeletkit.Agent
}

// join adds the evictions to the options of the agent. Its membership of a cluster may be nil.
func (e *evictions) join(opts *kubeletkit.Options, s *config.Settings, rt runtime.Runtime, cgroups *cgroup.Pods,
	joins *member, m *metrics, log logr.Logger) error {
	thresholds, err := s.Thresholds()
	if err != nil {
		return err
	}
	mopts := eviction.MachineOptions{RootDir: s.RootDir, Logger: log.WithName("eviction")}
	if images, ok := runtime.Optional[runtime.ImageService](rt); ok && !s.Embedded { // its images take no space
		mopts.Images = images.ImageFsInfo
	}
	uopts := eviction.UsagesOptions{RootDir: s.RootDir, PodLogsDir: s.PodLogsDir}
	if cgroups != nil {
		uopts.PodCgroup = cgroups.Parent
		guaranteed := &v1.Pod{}
		guaranteed.UID, guaranteed.Status.QOSClass = "uid", v1.PodQOSGuaranteed
		mopts.PodsCgroup = func() string { return path.Dir(cgroups.Parent(guaranteed)) }
	}
	sensor, err := eviction.NewMachine(mopts)
	if err != nil {
		return err
	}
	join := kubeletkit.WithAgent(func(agent *kubeletkit.Agent) (lifecycle.Component, error) {
		e.agent, uopts.Status = agent, agent.RuntimeStatus
		uopts.VolumeStats = func(ctx context.Context, pod *v1.Pod, dir string) ([]statsv1alpha1.VolumeStats, error) {
			return agent.Parts().Volumes.VolumeStats(ctx, pod, dir)
		}
		meter, err := eviction.NewUsages(rt, uopts)
		if err != nil {
			return nil, err
		}
		e.manager, err = eviction.New(e, sensor, meter, eviction.Options{
			Thresholds: thresholds, PressureTransitionPeriod: s.EvictionPressureTransitionPeriod.Duration,
			MaxPodGracePeriod: int64(s.EvictionMaxPodGracePeriod),
			EvictStatic:       s.EvictStatic(),
			Changed: func() {
				if joins != nil {
					joins.Update()
				}
			},
			Event: agent.Parts().Event, Record: agent.Parts().Record,
			Metrics: m.evictions, Logger: log.WithName("eviction"),
		})
		return e.manager, err
	})
	opts.Join = append([]lifecycle.Component{join}, opts.Join...) // before it is decided what else a pod costs
	return nil
}

// conditions returns the conditions of the node.
func (e *evictions) conditions(context.Context) []v1.NodeCondition {
	return []v1.NodeCondition{
		clusternode.MemoryPressure(e.manager.UnderPressure(v1.NodeMemoryPressure)),
		clusternode.DiskPressure(e.manager.UnderPressure(v1.NodeDiskPressure)),
		clusternode.PIDPressure(e.manager.UnderPressure(v1.NodePIDPressure)),
	}
}

// Pods implements [eviction.Agent].
func (e *evictions) Pods() []eviction.Pod {
	var out []eviction.Pod
	parts := e.agent.Parts()
	for _, pod := range slices.Concat(parts.PodManager.Pods(), e.agent.Terminating()) {
		if st := parts.PodWorkers.State(pod.UID); st.Known() && !st.Terminated() {
			out = append(out, eviction.Pod{Pod: pod, Ending: st.TerminationRequested()})
		}
	}
	return out
}

// Evict implements [eviction.Agent].
func (e *evictions) Evict(uid types.UID, how runtime.Eviction) error { return e.agent.Evict(uid, how) }

// Ended implements [eviction.Agent].
func (e *evictions) Ended(uid types.UID) bool {
	st := e.agent.Parts().PodWorkers.State(uid)
	return !st.Known() || st.Finished
}

// DeleteUnusedContainers implements [eviction.Agent].
func (e *evictions) DeleteUnusedContainers(ctx context.Context) error {
	return e.agent.Parts().GC.DeleteUnused(ctx)
}

// DeleteUnusedImages implements [eviction.Agent].
func (e *evictions) DeleteUnusedImages(ctx context.Context) error {
	if images := e.agent.Parts().ImageGC; images != nil {
		return images.DeleteUnusedImages(ctx)
	}
	return nil
}
