package check

import "strings"

// KubeadmArgs are the flags of a kubelet in the unit of kubeadm's packages. The rest is in the files of
// [KubeadmFlagFiles].
func KubeadmArgs() []string {
	return []string{
		"--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf", "--kubeconfig=/etc/kubernetes/kubelet.conf",
		"--config=" + KubeadmConfig,
	}
}

// KubeadmConfig is the configuration that kubeadm writes.
const KubeadmConfig = "/var/lib/kubelet/config.yaml"

// KubeadmFlagFiles are the files of flags in the unit of kubeadm's packages. None of them need exist.
func KubeadmFlagFiles() []string {
	return []string{"/var/lib/kubelet/kubeadm-flags.env", "/etc/default/kubelet", "/etc/sysconfig/kubelet"}
}

// FlagsOf returns the flags in a file of environment variables of systemd: the words of the variables
// whose names end in ARGS, such as KUBELET_KUBEADM_ARGS.
func FlagsOf(content string) (flags []string) {
	for line := range strings.Lines(content) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		if ok && strings.HasSuffix(name, "ARGS") && !strings.HasPrefix(name, "#") {
			flags = append(flags, strings.Fields(strings.Trim(value, `"'`))...)
		}
	}
	return flags
}
