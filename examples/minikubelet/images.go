package main

import (
	"path/filepath"

	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/examples/minikubelet/internal/config"
	"github.com/kubeletkit/kubeletkit/images"
	"github.com/kubeletkit/kubeletkit/images/credentials"
)

// imageOptions translates the settings of image pulls.
func imageOptions(s *config.Settings) images.Options {
	return images.Options{
		Credentials: credentials.Join(credentials.Secrets{}, credentials.NodeConfig(filepath.Join(s.RootDir, "config.json"))),
		Serial:      *s.SerializeImagePulls,
		MaxParallel: int(ptr.Deref(s.MaxParallelImagePulls, 0)),
		QPS:         float64(ptr.Deref(s.RegistryPullQPS, 0)),
		Burst:       int(s.RegistryBurst),
	}
}
