package podvalidation

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/component-helpers/node/util/sysctl"
)

// hostUsers reports whether the pod shares the user namespace of the host.
func (c *checker) hostUsers() bool { return c.spec.HostUsers == nil || *c.spec.HostUsers }

// podSecurity checks the pod's security context and its host namespaces.
func (c *checker) podSecurity(spec *field.Path) {
	if !c.hostUsers() {
		const detail = "when `hostUsers` is false"
		c.forbiddenIf(c.spec.HostNetwork, spec.Child("hostNetwork"), detail)
		// The API server spells these two fields so.
		c.forbiddenIf(c.spec.HostPID, spec.Child("HostPID"), detail)
		c.forbiddenIf(c.spec.HostIPC, spec.Child("HostIPC"), detail)
		for path, ctr := range c.allContainers(spec) {
			c.forbiddenIf(len(ctr.VolumeDevices) > 0, path.Child("volumeDevices"), detail)
		}
	}
	path := spec.Child("securityContext")
	if isTrue(c.spec, func(s *v1.PodSpec) *bool { return s.ShareProcessNamespace }) && c.spec.HostPID {
		c.invalid(spec.Child("shareProcessNamespace"), true, "ShareProcessNamespace and HostPID cannot both be enabled")
	}
	s := c.spec.SecurityContext
	if s == nil {
		return
	}
	c.ids(path, s.RunAsUser, s.RunAsGroup)
	if s.FSGroup != nil {
		c.invalid(path.Child("fsGroup"), *s.FSGroup, validation.IsValidGroupID(*s.FSGroup)...)
	}
	for i, g := range s.SupplementalGroups {
		c.invalid(path.Child("supplementalGroups").Index(i), g, validation.IsValidGroupID(g)...)
	}
	if p := s.SupplementalGroupsPolicy; p != nil {
		supported(c, path.Child("supplementalGroupsPolicy"), *p, v1.SupplementalGroupsPolicyMerge,
			v1.SupplementalGroupsPolicyStrict)
	}
	if p := s.FSGroupChangePolicy; p != nil {
		supported(c, path.Child("fsGroupChangePolicy"), *p, v1.FSGroupChangeAlways, v1.FSGroupChangeOnRootMismatch)
	}
	if p := s.SELinuxChangePolicy; p != nil {
		supported(c, path.Child("seLinuxChangePolicy"), *p, v1.SELinuxChangePolicyMountOption,
			v1.SELinuxChangePolicyRecursive)
	}
	c.seccomp(path.Child("seccompProfile"), s.SeccompProfile)
	c.appArmor(path.Child("appArmorProfile"), s.AppArmorProfile)
	c.sysctls(path.Child("sysctls"), s.Sysctls)
}

func (c *checker) containerSecurity(path *field.Path, s *v1.SecurityContext) {
	if s == nil {
		return
	}
	c.ids(path, s.RunAsUser, s.RunAsGroup)
	if p := s.ProcMount; p != nil {
		supported(c, path.Child("procMount"), *p, v1.DefaultProcMount, v1.UnmaskedProcMount)
		if *p == v1.UnmaskedProcMount && c.hostUsers() {
			c.invalid(path.Child("procMount"), *p, "`hostUsers` must be false to use `Unmasked`")
		}
	}
	c.seccomp(path.Child("seccompProfile"), s.SeccompProfile)
	c.appArmor(path.Child("appArmorProfile"), s.AppArmorProfile)
	if s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation {
		return
	}
	if s.Privileged != nil && *s.Privileged {
		c.invalid(path, field.OmitValueType{},
			"cannot set `allowPrivilegeEscalation` to false and `privileged` to true")
	}
	if s.Capabilities != nil && slices.Contains(s.Capabilities.Add, "CAP_SYS_ADMIN") {
		c.invalid(path, field.OmitValueType{}, "cannot set `allowPrivilegeEscalation` to false and "+
			"`capabilities.Add` CAP_SYS_ADMIN")
	}
}

func (c *checker) ids(path *field.Path, user, group *int64) {
	if user != nil {
		c.invalid(path.Child("runAsUser"), *user, validation.IsValidUserID(*user)...)
	}
	if group != nil {
		c.invalid(path.Child("runAsGroup"), *group, validation.IsValidGroupID(*group)...)
	}
}

func (c *checker) seccomp(path *field.Path, p *v1.SeccompProfile) {
	if p == nil {
		return
	}
	oneOf(c, path.Child("type"), p.Type, v1.SeccompProfileTypeLocalhost, v1.SeccompProfileTypeRuntimeDefault,
		v1.SeccompProfileTypeUnconfined)
	path = path.Child("localhostProfile")
	switch local := p.Type == v1.SeccompProfileTypeLocalhost; {
	case local && p.LocalhostProfile == nil:
		c.required(path, "must be set when seccomp type is Localhost")
	case local:
		c.relative(path, *p.LocalhostProfile)
	case p.LocalhostProfile != nil:
		c.invalid(path, *p.LocalhostProfile, "can only be set when seccomp type is Localhost")
	}
}

func (c *checker) appArmor(path *field.Path, p *v1.AppArmorProfile) {
	if p == nil {
		return
	}
	oneOf(c, path.Child("type"), p.Type, v1.AppArmorProfileTypeLocalhost, v1.AppArmorProfileTypeRuntimeDefault,
		v1.AppArmorProfileTypeUnconfined)
	path = path.Child("localhostProfile")
	const maxPath = 4095 // PATH_MAX of Linux without the final zero
	switch local := p.Type == v1.AppArmorProfileTypeLocalhost; {
	case local && (p.LocalhostProfile == nil || *p.LocalhostProfile == ""):
		c.required(path, "must be set when AppArmor type is Localhost")
	case local && strings.TrimSpace(*p.LocalhostProfile) != *p.LocalhostProfile:
		c.invalid(path, *p.LocalhostProfile, "must not be padded with whitespace")
	case local && len(*p.LocalhostProfile) > maxPath:
		c.add(field.TooLong(path, "", maxPath))
	case p.LocalhostProfile != nil && (p.Type == v1.AppArmorProfileTypeRuntimeDefault ||
		p.Type == v1.AppArmorProfileTypeUnconfined):
		c.invalid(path, *p.LocalhostProfile, "can only be set when AppArmor type is Localhost")
	}
}

// sysctlName matches names whose parts are separated by dots or slashes (sysctl(8)).
var sysctlName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$`)
})

const maxSysctlName = 253 // as the API server

func (c *checker) sysctls(path *field.Path, sysctls []v1.Sysctl) {
	names := unique[string]{}
	for i, s := range sysctls {
		path := path.Index(i).Child("name")
		switch {
		case s.Name == "":
			c.required(path, "")
		case len(s.Name) > maxSysctlName || !sysctlName().MatchString(s.Name):
			c.invalid(path, s.Name, fmt.Sprintf("must have at most %d characters and match regex %s",
				maxSysctlName, sysctlName()))
		default:
			names.add(s.Name, func() { c.duplicate(path, s.Name) })
		}
		switch namespace, _, _ := sysctl.GetNamespace(s.Name); {
		case c.spec.HostNetwork && namespace == sysctl.NetNamespace:
			c.invalid(path, s.Name, "may not be specified when 'hostNetwork' is true")
		case c.spec.HostIPC && namespace == sysctl.IPCNamespace:
			c.invalid(path, s.Name, "may not be specified when 'hostIPC' is true")
		}
	}
}
