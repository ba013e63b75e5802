package main

import (
	"fmt"
	"path/filepath"

	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"k8s.io/kubernetes/cmd/kubelet/app/options"
	"k8s.io/kubernetes/pkg/kubelet"
	"k8s.io/kubernetes/pkg/kubelet/kubeletconfig"
)

// paths prints the paths of a kubelet whose only flag is --root-dir, by their names in docs/operate/swap.md. Its
// argument is the root directory.
func paths(args []string) (any, error) {
	if len(args) != 1 {
		return nil, fmt.Errorf("paths: want a root directory, have %q", args)
	}
	below := func(name string) string { return filepath.Join(args[0], name) }
	flags := options.NewKubeletFlags()
	config, err := options.NewKubeletConfiguration()
	if err != nil {
		return nil, err
	}
	return map[string]string{
		"device plugins":            filepath.Dir(pluginapi.KubeletSocket),
		"certificates":              flags.CertDirectory,
		"logs of pods":              config.PodLogsDir,
		"links to logs":             kubelet.DefaultContainerLogsDir,
		"pods and their volumes":    below(kubeletconfig.DefaultKubeletPodsDirName),
		"data of volume plugins":    below(kubeletconfig.DefaultKubeletPluginsDirName),
		"sockets of plugins":        below(kubeletconfig.DefaultKubeletPluginsRegistrationDirName),
		"pod resources API":         below(kubeletconfig.DefaultKubeletPodResourcesDirName),
		"pods API":                  below(podsAPIDir),
		"checkpoints of containers": below(kubeletconfig.DefaultKubeletCheckpointsDirName),
		"resolver configuration":    config.ResolverConfig,
		"container runtime":         config.ContainerRuntimeEndpoint,
		"FlexVolume plugins":        config.VolumePluginDir,
		"manifests":                 config.StaticPodPath,
		"credential providers": flags.ImageCredentialProviderConfigPath +
			flags.ImageCredentialProviderBinDir,
	}, nil
}
