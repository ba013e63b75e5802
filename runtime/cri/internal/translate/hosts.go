package translate

import (
	"bytes"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

const hostsPath = "/etc/hosts"

// The beginning of kubelet's hosts files.
const (
	hostsHeader            = "# Kubernetes-managed hosts file.\n"
	hostsHeaderHostNetwork = "# Kubernetes-managed hosts file (host network).\n"
	hostsLocal             = "127.0.0.1\tlocalhost\n" +
		"::1\tlocalhost ip6-localhost ip6-loopback\n" +
		"fe00::0\tip6-localnet\n" +
		"fe00::0\tip6-mcastprefix\n" +
		"fe00::1\tip6-allnodes\n" +
		"fe00::2\tip6-allrouters\n"
)

// HostsFile returns the content of the pod's /etc/hosts, which all its containers share.
// podIPs are the addresses that the runtime reports; nodeHosts is the content of the
// host's file, which pods with the host's network get, with their host aliases added.
func HostsFile(in *Pod, podIPs []string, nodeHosts []byte) ([]byte, error) {
	var b bytes.Buffer
	if podspec.HasHostNetwork(in.Spec) {
		b.WriteString(hostsHeaderHostNetwork)
		b.Write(nodeHosts)
	} else {
		name, domain, err := hostname(in)
		if err != nil {
			return nil, err
		}
		if domain != "" {
			name = name + "." + domain + "\t" + name
		}
		b.WriteString(hostsHeader + hostsLocal)
		for _, ip := range podIPs {
			fmt.Fprintf(&b, "%s\t%s\n", ip, name)
		}
	}
	writeHostAliases(&b, in.Spec.Spec.HostAliases)
	return b.Bytes(), nil
}

func writeHostAliases(b *bytes.Buffer, aliases []v1.HostAlias) {
	if len(aliases) == 0 {
		return
	}
	b.WriteString("\n# Entries added by HostAliases.\n")
	for i := range aliases {
		fmt.Fprintf(b, "%s\t%s\n", aliases[i].IP, strings.Join(aliases[i].Hostnames, "\t"))
	}
}

// NeedsHostsFile reports whether the container mounts the file of [HostsFile]: if the pod
// has an address or the host's network, and the container has no other mount at
// /etc/hosts.
func NeedsHostsFile(in *Container) bool {
	if len(in.PodIPs) == 0 && !podspec.HasHostNetwork(in.Pod.Spec) {
		return false
	}
	for i := range in.Spec.VolumeMounts {
		if in.Spec.VolumeMounts[i].MountPath == hostsPath {
			return false
		}
	}
	return true
}
