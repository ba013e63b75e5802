package kubelet

import (
	"path/filepath"

	"github.com/go-logr/logr"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/kubelet/internal/config"
	"github.com/kubeletkit/kubeletkit/node/images"
	"github.com/kubeletkit/kubeletkit/node/images/credentials"
	"github.com/kubeletkit/kubeletkit/node/images/records"
)

// imageOptions returns the options of image pulls.
func imageOptions(s *config.Settings, log logr.Logger) (images.Options, error) {
	opts := images.Options{
		Credentials: credentials.Join(credentials.Secrets{},
			credentials.NodeConfig(filepath.Join(s.RootDir, "config.json"))),
		Serial:      *s.SerializeImagePulls,
		MaxParallel: int(ptr.Deref(s.MaxParallelImagePulls, 0)),
		QPS:         float64(ptr.Deref(s.RegistryPullQPS, 0)),
		Burst:       int(s.RegistryBurst),
	}
	if !s.VerifiesImages() {
		return opts, nil
	}
	verification := s.ImageVerification()
	verification.Logger = log.WithName("images")
	var err error
	opts.Records, err = records.New(s.RootDir, verification)
	return opts, err
}
