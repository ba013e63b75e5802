package translate

import (
	"cmp"
	"fmt"
	"maps"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/node/util/sysctl"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/internal/crimeta"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// SandboxConfig returns the configuration of the pod's sandbox. attempt is the number of
// earlier sandboxes of the pod. [Warnings] returns what the sandbox does not get.
func SandboxConfig(in *Pod, attempt uint32) (*criv1.PodSandboxConfig, error) {
	pod := in.Spec
	security, err := sandboxSecurity(in)
	if err != nil {
		return nil, err
	}
	config := &criv1.PodSandboxConfig{
		Metadata: &criv1.PodSandboxMetadata{
			Name:      pod.Name,
			Namespace: pod.Namespace,
			Uid:       string(pod.UID),
			Attempt:   attempt,
		},
		LogDirectory: crimeta.LogDirectory(in.Host.PodLogsDir, runtime.RefOf(pod)),
		PortMappings: portMappings(pod),
		Labels:       crimeta.SandboxLabels(pod),
		Annotations:  sandboxAnnotations(in),
		Linux: &criv1.LinuxPodSandboxConfig{
			CgroupParent:    cmp.Or(in.Edits.CgroupParent, in.CgroupParent),
			SecurityContext: security,
			Sysctls:         sysctls(in),
			Overhead:        overheadResources(in),
			Resources:       sandboxResources(in),
		},
	}
	config.DnsConfig, _ = dns(in)
	if !podspec.HasHostNetwork(pod) {
		if config.Hostname, err = kernelHostname(in); err != nil {
			return nil, err
		}
	}
	return config, nil
}

// sandboxAnnotations returns the annotations of the pod, and those of the edits that the pod does not have.
func sandboxAnnotations(in *Pod) map[string]string {
	if len(in.Edits.Annotations) == 0 {
		return maps.Clone(in.Spec.Annotations)
	}
	out := maps.Clone(in.Edits.Annotations)
	maps.Copy(out, in.Spec.Annotations)
	return out
}

// Warnings returns what the pod requests and does not get: nameservers and search domains
// beyond the limits of resolvers, cluster DNS without a cluster.
func Warnings(in *Pod) []Warning {
	_, warnings := dns(in)
	return warnings
}

// sysctls returns the kernel parameters of the pod, in the notation with dots.
func sysctls(in *Pod) map[string]string {
	pod, out := in.Spec, map[string]string{}
	for name, value := range in.Node.PodSysctls {
		name = sysctl.NormalizeName(name)
		host := true
		switch namespace, _, _ := sysctl.GetNamespace(name); namespace {
		case sysctl.IPCNamespace:
			// Runtimes refuse the identifiers of the next object, kernel.msg_next_id and the like; kubelet leaves them
			// out.
			host = pod.Spec.HostIPC || strings.HasSuffix(name, "_next_id")
		case sysctl.NetNamespace:
			host = podspec.HasHostNetwork(pod)
		case sysctl.UserNamespace:
			host = !podspec.HasUserNamespace(pod)
		}
		if !host {
			out[name] = value
		}
	}
	if sc := pod.Spec.SecurityContext; sc != nil {
		for i := range sc.Sysctls {
			out[sysctl.NormalizeName(sc.Sysctls[i].Name)] = sc.Sysctls[i].Value
		}
	}
	return out
}

// portMappings returns the ports of the main containers, also those without a host port,
// which the runtime ignores, as it ignores all on the host's network. Of ports of one
// container that have the same name or are equal, the first is used. Equal ports of
// different address families are kept.
func portMappings(pod *v1.Pod) []*criv1.PortMapping {
	var out []*criv1.PortMapping
	for i := range pod.Spec.Containers {
		seen := map[string]bool{}
		for _, p := range pod.Spec.Containers[i].Ports {
			key := p.Name
			if key == "" {
				key = fmt.Sprintf("%s-%s-%s:%d:%d", family(p.HostIP), p.Protocol, p.HostIP, p.ContainerPort, p.HostPort)
			}
			if seen[key] {
				continue
			}
			seen[key] = true
			out = append(out, &criv1.PortMapping{
				Protocol:      protocol(p.Protocol),
				ContainerPort: p.ContainerPort,
				HostPort:      p.HostPort,
				HostIp:        p.HostIP,
			})
		}
	}
	return out
}

func family(hostIP string) string {
	switch {
	case hostIP == "":
		return "any"
	case isIPv6(hostIP):
		return "v6"
	default:
		return "v4"
	}
}

func protocol(p v1.Protocol) criv1.Protocol {
	switch p {
	case v1.ProtocolUDP:
		return criv1.Protocol_UDP
	case v1.ProtocolSCTP:
		return criv1.Protocol_SCTP
	default:
		return criv1.Protocol_TCP
	}
}
