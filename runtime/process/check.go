package process

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// hostFacts are the properties of the host and of this process that decide what a
// container can get.
type hostFacts struct {
	UID, GID int
	Groups   []int
	// Nameservers of the host's resolv.conf.
	Nameservers []string
	// SameFile reports whether two paths lead to the same file.
	SameFile func(a, b string) bool
}

func (h *hostFacts) root() bool { return h.UID == 0 }

// findings are the requests that cannot be met. Those in refused are errors. usual are the warnings about what no
// container of the server gets.
type findings struct {
	refused, warnings []string
	usual             map[string]bool
}

func (f *findings) refuse(format string, args ...any) {
	f.refused = append(f.refused, fmt.Sprintf(format, args...))
}

func (f *findings) warn(format string, args ...any) {
	f.warnings = append(f.warnings, fmt.Sprintf(format, args...))
}

// warnUsual is warn for what no container of this server gets: the program says it at its start.
func (f *findings) warnUsual(format string, args ...any) {
	f.warn(format, args...)
	if f.usual == nil {
		f.usual = map[string]bool{}
	}
	f.usual[f.warnings[len(f.warnings)-1]] = true
}

// err returns one error for everything in refused, or nil.
func (f *findings) err(about string) error {
	if len(f.refused) == 0 {
		return nil
	}
	return status.Errorf(codes.InvalidArgument, "%s: containers are host processes here: %s", about,
		strings.Join(f.refused, "; "))
}

// checkSandbox compares the requests of a sandbox with what a host process can have.
func checkSandbox(c *criv1.PodSandboxConfig, host *hostFacts) *findings {
	f := &findings{}
	if c.GetMetadata().GetName() == "" || c.GetMetadata().GetUid() == "" || c.GetMetadata().GetNamespace() == "" {
		f.refuse("the sandbox has no name, namespace or UID")
	}
	sec := c.GetLinux().GetSecurityContext()
	if ns := sec.GetNamespaceOptions(); ns.GetNetwork() == criv1.NamespaceMode_POD {
		f.warnUsual("the pod has no network of its own: its address and its ports are the host's")
	}
	for _, p := range c.GetPortMappings() {
		if p.GetHostPort() != 0 && p.GetHostPort() != p.GetContainerPort() {
			f.refuse("host port %d cannot differ from container port %d, which is a port of the host; make them equal",
				p.GetHostPort(), p.GetContainerPort())
		}
	}
	if n := len(c.GetLinux().GetSysctls()); n > 0 {
		f.refuse("sysctls would be the host's")
	}
	if users := sec.GetNamespaceOptions().GetUsernsOptions(); users != nil &&
		users.GetMode() == criv1.NamespaceMode_POD {
		f.refuse(noUserNamespaces)
	}
	for _, s := range c.GetDnsConfig().GetServers() {
		if !slices.Contains(host.Nameservers, s) {
			f.warn("the pod's DNS configuration has no effect: the host's resolv.conf is used")
			break
		}
	}
	return f
}

// Paths that clients mount into every container.
const (
	defaultTerminationLog = "/dev/termination-log"
	serviceAccountPath    = "/var/run/secrets/kubernetes.io/serviceaccount"
	// terminationPathAnnotation is kubelet's, on containers.
	terminationPathAnnotation = "io.kubernetes.container.terminationMessagePath"
)

// MountsAnnotation on a pod allows mounts at paths that are not those of the host. With the
// value "env" the containers find them in the environment, see [MountEnv]. With the value
// "link" the server makes symbolic links at these paths, for containers of its own user.
const MountsAnnotation = "process.kubeletkit.io/mounts"

// TerminationEnv is the environment variable with the path of the file for the
// termination message.
const TerminationEnv = "TERMINATION_MESSAGE_PATH"

// MountEnv returns the environment variable with the host path of the mount at the
// container path. It is "MOUNT_" and the path in upper case, with "_" for each other
// character. For "/var/cache" it is MOUNT_VAR_CACHE.
func MountEnv(containerPath string) string {
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		case r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		default:
			return '_'
		}
	}, strings.Trim(filepath.ToSlash(containerPath), "/"))
	return "MOUNT_" + name
}

// checkContainer compares the requests of a container with what a host process can have.
// env are the environment variables that it needs because of that, and links the symbolic
// links.
func checkContainer(c *criv1.ContainerConfig, sandbox *criv1.PodSandboxConfig,
	host *hostFacts) (f *findings, env []string, links []link) {
	f = &findings{}
	if c.GetMetadata().GetName() == "" {
		f.refuse("the container has no name")
	}
	if len(c.GetCommand()) == 0 {
		f.refuse("no command is given, and there is no image with an entry point; set the container's command")
	}
	if dir := c.GetWorkingDir(); dir != "" && !filepath.IsAbs(dir) {
		f.refuse("working directory %q is not an absolute path", dir)
	}
	if p := c.GetLogPath(); p != "" && !filepath.IsLocal(p) {
		f.refuse("log path %q is not inside the log directory", p)
	}
	env, links = checkMounts(f, c, sandbox, host)
	for _, d := range c.GetDevices() {
		if filepath.Clean(d.GetHostPath()) != filepath.Clean(d.GetContainerPath()) {
			f.refuse("device %s cannot be at %s; use the host's path", d.GetHostPath(), d.GetContainerPath())
		}
	}
	if len(c.GetCDIDevices()) > 0 {
		f.refuse("CDI devices are not supported")
	}
	checkSecurity(f, c.GetLinux().GetSecurityContext(), host)
	return f, env, links
}

// link is a symbolic link in place of a mount.
type link struct{ at, to string }

func checkMounts(f *findings, c *criv1.ContainerConfig, sandbox *criv1.PodSandboxConfig,
	host *hostFacts) (env []string, links []link) {
	mode := sandbox.GetAnnotations()[MountsAnnotation]
	termination := c.GetAnnotations()[terminationPathAnnotation]
	if termination == "" {
		termination = defaultTerminationLog
	}
	readOnly := false
	for _, m := range c.GetMounts() {
		at, from := filepath.Clean(m.GetContainerPath()), filepath.Clean(m.GetHostPath())
		switch {
		case m.GetImage() != nil && m.GetImage().GetImage() != "":
			f.refuse("image %s cannot be mounted at %s", m.GetImage().GetImage(), at)
		case at == filepath.Clean(termination):
			env = append(env, TerminationEnv+"="+from)
		case at == "/etc/hosts", at == "/etc/resolv.conf", at == "/etc/hostname":
			// Clients add these to every container. The container uses those of the host.
		case m.GetHostPath() == "":
			f.refuse("the mount at %s has no host path", at)
		case at == from, mode != "link" && host.SameFile(at, from):
			readOnly = readOnly || m.GetReadonly()
		case mode == "link" && at != serviceAccountPath:
			links = append(links, link{at, from})
			readOnly = readOnly || m.GetReadonly()
		case mode == "env", at == serviceAccountPath:
			env = append(env, MountEnv(at)+"="+from)
			readOnly = readOnly || m.GetReadonly()
		default:
			f.refuse("%s cannot be mounted at %s: set mountPath to the host's path; or set the annotation %s on the "+
				"pod to env, and let the program use the path in $%s, or to link, for a symbolic link",
				from, at, MountsAnnotation, MountEnv(at))
		}
	}
	if readOnly {
		f.warnUsual("read-only mounts are writable if the user may write to them")
	}
	return env, links
}

func checkSecurity(f *findings, sec *criv1.LinuxContainerSecurityContext, host *hostFacts) {
	if sec.GetPrivileged() && !host.root() {
		f.refuse("privileged needs an agent that runs as root")
	}
	if caps := sec.GetCapabilities(); caps != nil {
		if add := slices.Concat(caps.GetAddCapabilities(), caps.GetAddAmbientCapabilities()); len(add) > 0 &&
			!host.root() {
			f.refuse("capabilities (%s) cannot be added by an agent that does not run as root", strings.Join(add, ", "))
		}
		if len(caps.GetDropCapabilities()) > 0 && host.root() && !sec.GetPrivileged() {
			f.warn("capabilities are not dropped; run the container as another user than root instead")
		}
	}
	if sec.GetReadonlyRootfs() {
		f.warn("the root file system is the host's and is not made read-only")
	}
	if users := sec.GetNamespaceOptions().GetUsernsOptions(); users != nil &&
		users.GetMode() == criv1.NamespaceMode_POD {
		f.refuse(noUserNamespaces)
	}
	if !sec.GetPrivileged() { // CRI: profiles do not apply to privileged containers
		checkProfile(f, "seccomp", sec.GetSeccomp(), true)
		checkProfile(f, "AppArmor", sec.GetApparmor(), false)
		//lint:ignore SA1019 clients older than CRI 0.29 set only this field
		if p := sec.GetApparmorProfile(); sec.GetApparmor() == nil && strings.HasPrefix(p, "localhost/") {
			f.refuse("AppArmor profile %q is not supported", p)
		}
	}
	if o := sec.GetSelinuxOptions(); o.GetLevel() != "" || o.GetRole() != "" || o.GetType() != "" || o.GetUser() != "" {
		f.warn("SELinux options have no effect")
	}
}

// checkProfile refuses a profile of the user's own. It can warn about the runtime's
// default, which many manifests request.
func checkProfile(f *findings, kind string, p *criv1.SecurityProfile, warn bool) {
	switch {
	case p == nil || p.GetProfileType() == criv1.SecurityProfile_Unconfined:
	case p.GetProfileType() == criv1.SecurityProfile_Localhost:
		f.refuse("%s profile %q is not supported", kind, p.GetLocalhostRef())
	case warn:
		f.warn("there is no default %s profile; the container is not confined", kind)
	}
}

// noUserNamespaces is why pods with hostUsers: false are refused. Volumes, binaries and logs belong to users of the
// host, and a container whose users are mapped could use them only through mounts that map IDs; there are no mounts
// here.
const noUserNamespaces = "user namespaces (hostUsers: false) are not supported: containers use the files of the " +
	"host without mounts, so the IDs of their owners cannot be mapped"
