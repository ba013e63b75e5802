package syncloop

import (
	"fmt"
	"regexp"
	goruntime "runtime"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/component-helpers/node/util/sysctl"

	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// safeKernel returns the first kernel in which a safe sysctl has a value for each pod, "" if
// all have it. A sysctl is safe if it has no influence on other pods of the node. The list
// is that of kubelet 1.37 (pkg/kubelet/sysctl/safe_sysctls.go, pkg/util/kernel).
func safeKernel(name string) (kernel string, safe bool) {
	switch name {
	case "kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.tcp_syncookies",
		"net.ipv4.ping_group_range", "net.ipv4.ip_unprivileged_port_start":
		return "", true
	case "net.ipv4.ip_local_reserved_ports":
		return "3.16", true
	case "net.ipv4.tcp_keepalive_time", "net.ipv4.tcp_keepalive_intvl", "net.ipv4.tcp_keepalive_probes":
		return "4.5", true
	case "net.ipv4.tcp_fin_timeout", "net.ipv4.tcp_notsent_lowat":
		return "4.6", true
	case "net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem", "net.ipv4.tcp_slow_start_after_idle":
		return "4.15", true
	default:
		return "", false
	}
}

// isSafe reports whether a sysctl, in the notation with dots, is safe on the host.
func isSafe(name string, host *runtime.Host) bool {
	kernel, safe := safeKernel(name)
	if !safe || goruntime.GOOS != "linux" {
		return false
	}
	if kernel == "" {
		return true
	}
	if host == nil {
		return false
	}
	running, err := version.ParseGeneric(host.KernelRelease)
	return err == nil && running.AtLeast(version.MustParseGeneric(kernel))
}

// sysctlList is a list of sysctls that pods may set. The zero value is empty.
type sysctlList struct {
	names    map[string]bool
	prefixes []string
}

// The patterns and the length of sysctls of the Kubernetes API.
const (
	sysctlSegment   = "[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
	sysctlPattern   = "(" + sysctlSegment + `[\./])*([a-z0-9][-_a-z0-9]*)?[a-z0-9*]`
	sysctlMaxLength = 253
)

// add adds a sysctl, or all that begin with what precedes a "*".
func (l *sysctlList) add(pattern string) error {
	valid, err := regexp.MatchString("^"+sysctlPattern+"$", pattern)
	if err != nil || !valid || len(pattern) > sysctlMaxLength {
		return fmt.Errorf("sysctl %q must have at most %d characters and match regex %s", pattern, sysctlMaxLength,
			sysctlPattern)
	}
	namespace, name, prefix := sysctl.GetNamespace(pattern)
	switch {
	case namespace == sysctl.UnknownNamespace:
		return fmt.Errorf("sysctl %q is not known to have a value for each pod", pattern)
	case prefix:
		l.prefixes = append(l.prefixes, name)
	default:
		if l.names == nil {
			l.names = map[string]bool{}
		}
		l.names[name] = true
	}
	return nil
}

// match returns the entry for a sysctl, in the notation with dots; "" if there is none.
func (l *sysctlList) match(name string) (entry string) {
	if l.names[name] {
		return name
	}
	for _, p := range l.prefixes {
		if strings.HasPrefix(name, p) {
			return p
		}
	}
	return ""
}

// sysctls returns an error for the first sysctl that the pod may not set.
func (s *Security) sysctls(req lifecycle.AdmitRequest) error {
	spec := &req.Pod.Spec
	if spec.SecurityContext == nil {
		return nil
	}
	for i := range spec.SecurityContext.Sysctls {
		name := sysctl.NormalizeName(spec.SecurityContext.Sysctls[i].Name)
		entry := s.allowed.match(name)
		if isSafe(name, req.Host) {
			entry = name
		}
		if entry == "" {
			return fmt.Errorf("%q not allowlisted", name)
		}
		namespace, _, _ := sysctl.GetNamespace(entry)
		if namespace == sysctl.IPCNamespace && spec.HostIPC || namespace == sysctl.NetNamespace && spec.HostNetwork ||
			namespace == sysctl.UserNamespace && !podspec.HasUserNamespace(req.Pod) {
			return fmt.Errorf("%q not allowed with host %s enabled", name, namespace)
		}
	}
	return nil
}
