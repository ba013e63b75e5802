package main

import (
	"path/filepath"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/examples/minikubelet/internal/config"
	"github.com/kubeletkit/kubeletkit/node/users"
	"github.com/kubeletkit/kubeletkit/runtime/cri"
)

// addUsers adds the component that gives pods with hostUsers: false users of their own.
func addUsers(opts *kubeletkit.Options, s *config.Settings, rt *cri.Runtime, m *member) error {
	uopts := users.Options{
		IDsPerPod: s.IDsPerPod(), Pool: users.KubeletIDs, MaxPods: int(s.MaxPods),
		Features: rt.Features,
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
