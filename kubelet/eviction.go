package kubelet

import (
	"path"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/config"
	"github.com/kubeletkit/kubeletkit/node/cgroup"
	"github.com/kubeletkit/kubeletkit/node/eviction"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// addEvictions adds the evictions of an agent under pressure.
func addEvictions(opts *kubeletkit.Options, s *config.Settings, rt runtime.Runtime, cgroups *cgroup.Pods,
	log logr.Logger) error {
	thresholds, err := s.Thresholds()
	if err != nil {
		return err
	}
	mopts := eviction.MachineOptions{RootDir: s.RootDir, Logger: log.WithName("eviction")}
	if images, ok := runtime.Optional[runtime.ImageService](rt); ok && !s.Embedded { // its images take no space
		mopts.Images = images.ImageFsInfo
	}
	uopts := eviction.UsagesOptions{PodLogsDir: s.PodLogsDir}
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
	meter, err := eviction.NewUsages(rt, uopts)
	if err != nil {
		return err
	}
	manager, err := eviction.New(sensor, meter, eviction.Options{
		Thresholds: thresholds, PressureTransitionPeriod: s.EvictionPressureTransitionPeriod.Duration,
		MaxPodGracePeriod: int64(s.EvictionMaxPodGracePeriod), EvictStatic: s.EvictStatic(),
	})
	if err != nil {
		return err
	}
	opts.Join = append(opts.Join, manager)
	return nil
}
