package config

import (
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

const (
	// EmbeddedRuntime is the value of containerRuntimeEndpoint that requests the embedded runtime.
	EmbeddedRuntime = "embedded"
	// defaultEndpoint is that of kubelet (KubeletConfiguration v1beta1).
	defaultEndpoint = "unix:///run/containerd/containerd.sock"
)

// addRuntimeFlags binds the flags of the container runtime.
func (s *Settings) addRuntimeFlags(fs *pflag.FlagSet) {
	fs.StringVar(&s.ContainerRuntimeEndpoint, "container-runtime-endpoint", s.ContainerRuntimeEndpoint,
		"CRI socket of the container runtime, or "+EmbeddedRuntime+" for that of the agent, whose containers are "+
			"processes of this machine (default: "+EmbeddedRuntime+"; but "+defaultEndpoint+", as kubelet, with a "+
			"configuration, a kubeconfig or a flag that needs a container runtime)")
	fs.StringVar(&s.ImageServiceEndpoint, "image-service-endpoint", s.ImageServiceEndpoint,
		"CRI socket for images (default: that of the runtime)")
}

// runtimeFlags returns the flags that act only with a container runtime.
func runtimeFlags() []string {
	return strings.Fields(`cgroup-driver cgroup-root cgroups-per-qos cpu-manager-policy enforce-node-allocatable image-credential-provider-config
	image-service-endpoint kube-reserved-cgroup kubelet-cgroups max-open-files memory-manager-policy qos-reserved reserved-memory runtime-cgroups
	seccomp-default system-cgroups system-reserved-cgroup topology-manager-policy`)
}

// resolveRuntime decides which runtime an endpoint that is empty means. An agent that is started as a kubelet has
// kubelet's, so that no container of a node becomes a process without confinement.
func (s *Settings) resolveRuntime(fs *pflag.FlagSet) {
	switch {
	case s.program.OwnRuntime:
	case s.ContainerRuntimeEndpoint == EmbeddedRuntime:
		s.ContainerRuntimeEndpoint, s.Embedded = "", true
	case s.ContainerRuntimeEndpoint != "":
	case s.program.Configuration != nil, s.ConfigFile != "", s.ConfigDir != "", s.Kubeconfig != "",
		s.BootstrapKubeconfig != "", slices.ContainsFunc(runtimeFlags(), fs.Changed):
		s.ContainerRuntimeEndpoint = defaultEndpoint
	default:
		s.Embedded = true
	}
}
