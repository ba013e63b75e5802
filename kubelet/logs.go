package kubelet

import (
	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/config"
	"github.com/kubeletkit/kubeletkit/node/logs"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// joinLogs adds the rotation of the logs of containers. metrics may be nil.
func joinLogs(opts *kubeletkit.Options, s *config.Settings, rt runtime.LogReopener) error {
	lopts, ok := s.LogOptions()
	if !ok {
		return nil
	}
	manager, err := logs.New(rt, lopts)
	if err != nil {
		return err
	}
	opts.Join = append(opts.Join, manager)
	return nil
}
