package syncloop

import (
	"errors"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// SecurityOptions are the settings of a [Security]. The zero value is kubelet's default.
type SecurityOptions struct {
	// AllowedUnsafeSysctls are the sysctls that pods may set beside the safe ones, with the
	// separator "." or "/". A name may end in "*", which stands for any end, as in
	// "kernel.msg*". Only sysctls that are known to have a value for each pod are accepted:
	// those of the network and of IPC.
	AllowedUnsafeSysctls []string
	// Features returns the features of the runtime. It must not block. nil: the runtime has
	// none.
	Features func() runtime.Features
}

// Security is a [lifecycle.Admitter] with kubelet's checks of the security context of a pod. It
// refuses a pod
//
//   - that sets a sysctl that is neither safe nor allowed, or one of a namespace that the
//     pod shares with the host (SysctlForbidden);
//   - that requests the supplementalGroupsPolicy Strict of a runtime without it
//     (SupplementalGroupsPolicyNotSupported);
//   - that requests an AppArmor profile of a machine without AppArmor (AppArmor).
//
// The release of the kernel, and whether there is AppArmor, are those of
// [lifecycle.AdmitRequest].Host. Make a Security with [NewSecurity]. It is safe for concurrent use.
type Security struct {
	allowed  sysctlList
	features func() runtime.Features
}

var _ lifecycle.Admitter = (*Security)(nil)

// Name implements [lifecycle.Component].
func (*Security) Name() string { return "security" }

// NewSecurity returns a Security, or an error that names the sysctls that cannot be
// allowed.
func NewSecurity(opts SecurityOptions) (*Security, error) {
	s := &Security{features: opts.Features}
	var errs []error
	for _, pattern := range opts.AllowedUnsafeSysctls {
		if err := s.allowed.add(pattern); err != nil {
			errs = append(errs, fmt.Errorf("syncloop: %w", err))
		}
	}
	return s, errors.Join(errs...)
}

// Admit implements [lifecycle.Admitter].
func (s *Security) Admit(req lifecycle.AdmitRequest) (lifecycle.AdmitResponse, error) {
	return lifecycle.AdmitResponse{}, s.check(req)
}

func (s *Security) check(req lifecycle.AdmitRequest) error {
	if err := s.sysctls(req); err != nil {
		return lifecycle.Refuse("SysctlForbidden", fmt.Sprintf("forbidden sysctl: %v", err))
	}
	if wantsStrictGroups(req.Pod) && (s.features == nil || !s.features().SupplementalGroupsPolicy) {
		return lifecycle.Refuse("SupplementalGroupsPolicyNotSupported",
			"SupplementalGroupsPolicy=Strict is not supported in this node")
	}
	if err := appArmor(req.Pod, req.Host); err != nil {
		return lifecycle.Refuse("AppArmor", fmt.Sprintf("Cannot enforce AppArmor: %v", err))
	}
	return nil
}

func wantsStrictGroups(pod *v1.Pod) bool {
	sc := pod.Spec.SecurityContext
	return sc != nil && sc.SupplementalGroupsPolicy != nil &&
		*sc.SupplementalGroupsPolicy == v1.SupplementalGroupsPolicyStrict
}

// appArmor returns an error if the pod requests a profile and the host has no AppArmor. A pod
// that runs or has ended is not judged again, as in kubelet.
func appArmor(pod *v1.Pod, host *runtime.Host) error {
	if pod.Status.Phase != "" && pod.Status.Phase != v1.PodPending {
		return nil
	}
	profiles := appArmorProfiles(pod)
	for _, p := range profiles {
		if p == v1.DeprecatedAppArmorBetaProfileNameUnconfined {
			continue
		}
		if host == nil || !host.AppArmor {
			return errors.New("AppArmor is not enabled on the host")
		}
		if name, local := strings.CutPrefix(p, v1.DeprecatedAppArmorBetaProfileNamePrefix); local &&
			strings.TrimSpace(name) == "" {
			return fmt.Errorf("invalid empty AppArmor profile name: %q", name)
		}
	}
	return nil
}

// appArmorProfiles returns the profiles that the pod requests, in the notation of the
// annotations that the fields have replaced. Static pods may still have these.
func appArmorProfiles(pod *v1.Pod) []string {
	var out []string
	add := func(p *v1.AppArmorProfile) {
		switch {
		case p == nil:
		case p.Type == v1.AppArmorProfileTypeUnconfined:
			out = append(out, v1.DeprecatedAppArmorBetaProfileNameUnconfined)
		case p.Type == v1.AppArmorProfileTypeLocalhost:
			name := ""
			if p.LocalhostProfile != nil {
				name = *p.LocalhostProfile
			}
			out = append(out, v1.DeprecatedAppArmorBetaProfileNamePrefix+name)
		default:
			out = append(out, v1.DeprecatedAppArmorBetaProfileRuntimeDefault)
		}
	}
	if sc := pod.Spec.SecurityContext; sc != nil {
		add(sc.AppArmorProfile)
	}
	for _, c := range podspec.Containers(&pod.Spec) {
		if c.SecurityContext != nil {
			add(c.SecurityContext.AppArmorProfile)
		}
	}
	for key, value := range pod.Annotations {
		if strings.HasPrefix(key, v1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix) {
			out = append(out, value)
		}
	}
	return out
}
