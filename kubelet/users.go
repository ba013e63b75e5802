package kubelet

import (
	"path/filepath"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/config"
	"github.com/kubeletkit/kubeletkit/node/users"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// addUsers adds the component that gives pods with hostUsers: false users of their own.
func addUsers(opts *kubeletkit.Options, s *config.Settings, features func() runtime.Features, m *member) error {
	uopts := users.Options{
		IDsPerPod: s.IDsPerPod(), Pool: users.KubeletIDs, MaxPods: int(s.MaxPods),
		Features: features,
	}
	if m != nil {
		uopts.RuntimeHandler = m.RuntimeHandler
	}
	manager, err := users.New(filepath.Join(s.RootDir, "pods"), uopts)
	if err != nil {
		return err
	}
	opts.Join = append(opts.Join, manager)
	return nil
}
