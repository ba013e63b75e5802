package podvalidation

import (
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func isWindows(spec *v1.PodSpec) bool { return spec.OS != nil && spec.OS.Name == v1.Windows }

// os checks that a pod with an operating system has no fields that only another
// operating system has.
func (c *checker) os(spec *field.Path) {
	if c.spec.OS == nil {
		return
	}
	switch c.spec.OS.Name {
	case "":
		c.required(spec.Child("os", "name"), "")
	case v1.Linux:
		c.notFor("linux", spec, []string{"windowsOptions"}, []string{"windowsOptions"})
	case v1.Windows:
		c.forWindows(spec)
	default:
		c.add(field.NotSupported(spec.Child("os"), c.spec.OS.Name, []v1.OSName{v1.Linux, v1.Windows}))
	}
}

func (c *checker) forWindows(spec *field.Path) {
	s := c.spec
	const detail = "cannot be set for a windows pod"
	c.forbiddenIf(s.HostUsers != nil, spec.Child("hostUsers"), detail)
	c.forbiddenIf(s.HostPID, spec.Child("hostPID"), detail)
	c.forbiddenIf(s.HostIPC, spec.Child("hostIPC"), detail)
	c.forbiddenIf(s.ShareProcessNamespace != nil, spec.Child("shareProcessNamespace"), detail)
	c.notFor("windows", spec, []string{
		"appArmorProfile", "seLinuxOptions", "seccompProfile", "fsGroup", "fsGroupChangePolicy", "sysctls", "runAsUser",
		"runAsGroup", "supplementalGroups", "supplementalGroupsPolicy", "seLinuxChangePolicy",
	}, []string{
		"appArmorProfile", "seLinuxOptions", "seccompProfile", "capabilities", "readOnlyRootFilesystem", "privileged",
		"allowPrivilegeEscalation", "procMount", "runAsUser", "runAsGroup",
	})
}

// notFor refuses fields of security contexts that the operating system does not have:
// ofPod in the context of the pod, ofContainer in those of its containers.
func (c *checker) notFor(os string, spec *field.Path, ofPod, ofContainer []string) {
	detail := "cannot be set for a " + os + " pod"
	refuse := func(path *field.Path, set, fields []string) {
		for _, f := range fields {
			c.forbiddenIf(slices.Contains(set, f), path.Child("securityContext", f), detail)
		}
	}
	if s := c.spec.SecurityContext; s != nil {
		refuse(spec, setFields(s), ofPod)
	}
	for path, ctr := range c.allContainers(spec) {
		if s := ctr.SecurityContext; s != nil {
			refuse(path, setFields(s), ofContainer)
		}
	}
}

// stopSignal checks the signal that a container is stopped with.
func (c *checker) stopSignal(path *field.Path, s v1.Signal) {
	switch {
	case c.spec.OS == nil:
		c.forbidden(path, "may not be set for containers with empty `spec.os.name`")
	case c.spec.OS.Name == v1.Windows:
		supported(c, path, s, v1.SIGKILL, v1.SIGTERM)
	case c.spec.OS.Name == v1.Linux:
		supported(c, path, s, linuxSignals()...)
	}
}

// linuxSignals are the signals of signal(7), the real-time ones as kill(1) writes
// them.
func linuxSignals() []v1.Signal {
	signals := []v1.Signal{
		v1.SIGABRT, v1.SIGALRM, v1.SIGBUS, v1.SIGCHLD, v1.SIGCLD, v1.SIGCONT, v1.SIGFPE, v1.SIGHUP, v1.SIGILL,
		v1.SIGINT, v1.SIGIO,
		v1.SIGIOT, v1.SIGKILL, v1.SIGPIPE, v1.SIGPOLL, v1.SIGPROF, v1.SIGPWR, v1.SIGQUIT, v1.SIGSEGV,
		v1.SIGSTKFLT, v1.SIGSTOP,
		v1.SIGSYS, v1.SIGTERM, v1.SIGTRAP, v1.SIGTSTP, v1.SIGTTIN, v1.SIGTTOU, v1.SIGURG, v1.SIGUSR1,
		v1.SIGUSR2, v1.SIGVTALRM,
		v1.SIGWINCH, v1.SIGXCPU, v1.SIGXFSZ, v1.SIGRTMIN, v1.SIGRTMAX,
	}
	for i := 1; i <= 15; i++ {
		signals = append(signals, v1.SIGRTMIN+"+"+v1.Signal(strconv.Itoa(i)))
	}
	for i := 1; i <= 14; i++ {
		signals = append(signals, v1.SIGRTMAX+"-"+v1.Signal(strconv.Itoa(i)))
	}
	return signals
}
