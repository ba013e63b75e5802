package translate

import (
	"errors"
	"fmt"
	"path"
	"strings"

	v1 "k8s.io/api/core/v1"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// seccomp returns the container's profile: its own, else its pod's, else the default of the
// node.
func seccomp(in *Container) (*criv1.SecurityProfile, error) {
	var profile *v1.SeccompProfile
	if sc := in.Pod.Spec.Spec.SecurityContext; sc != nil {
		profile = sc.SeccompProfile
	}
	if sc := in.Spec.SecurityContext; sc != nil {
		profile = orElse(sc.SeccompProfile, profile)
	}
	kind := v1.SeccompProfileTypeUnconfined
	switch {
	case profile != nil:
		kind = profile.Type
	case in.Pod.Node.SeccompDefault:
		kind = v1.SeccompProfileTypeRuntimeDefault
	}
	switch kind {
	case v1.SeccompProfileTypeRuntimeDefault:
		return &criv1.SecurityProfile{ProfileType: criv1.SecurityProfile_RuntimeDefault}, nil
	case v1.SeccompProfileTypeLocalhost:
		if profile.LocalhostProfile == nil || *profile.LocalhostProfile == "" {
			//lint:ignore ST1005 the text is in the status, and is kubelet's
			return nil, errors.New("localhostProfile must be set if seccompProfile type is Localhost.")
		}
		return &criv1.SecurityProfile{
			ProfileType:  criv1.SecurityProfile_Localhost,
			LocalhostRef: path.Join(in.Pod.Node.SeccompProfileRoot, *profile.LocalhostProfile),
		}, nil
	case v1.SeccompProfileTypeUnconfined:
		return &criv1.SecurityProfile{ProfileType: criv1.SecurityProfile_Unconfined}, nil
	default:
		return nil, fmt.Errorf("unknown seccomp profile type: %q", kind)
	}
}

// appArmor returns the container's profile, also in the deprecated form for older runtimes:
// its own, else that of the pod's annotation, which manifests older than the field have,
// else its pod's. Without any the runtime chooses.
func appArmor(pod *v1.Pod, c *v1.Container) (profile *criv1.SecurityProfile, deprecated string, err error) {
	switch p := appArmorProfile(pod, c); {
	case p == nil:
		return nil, "", nil
	case p.Type == v1.AppArmorProfileTypeRuntimeDefault:
		return &criv1.SecurityProfile{ProfileType: criv1.SecurityProfile_RuntimeDefault},
			v1.DeprecatedAppArmorBetaProfileRuntimeDefault, nil
	case p.Type == v1.AppArmorProfileTypeUnconfined:
		return &criv1.SecurityProfile{ProfileType: criv1.SecurityProfile_Unconfined},
			v1.DeprecatedAppArmorBetaProfileNameUnconfined, nil
	case p.Type == v1.AppArmorProfileTypeLocalhost:
		if p.LocalhostProfile == nil {
			return nil, "", errors.New("missing localhost apparmor profile name")
		}
		return &criv1.SecurityProfile{ProfileType: criv1.SecurityProfile_Localhost, LocalhostRef: *p.LocalhostProfile},
			v1.DeprecatedAppArmorBetaProfileNamePrefix + *p.LocalhostProfile, nil
	default:
		return nil, "", fmt.Errorf("unknown apparmor profile type: %q", p.Type)
	}
}

func appArmorProfile(pod *v1.Pod, c *v1.Container) *v1.AppArmorProfile {
	if c.SecurityContext != nil && c.SecurityContext.AppArmorProfile != nil {
		return c.SecurityContext.AppArmorProfile
	}
	value := pod.Annotations[v1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix+c.Name]
	if name, ok := strings.CutPrefix(value, v1.DeprecatedAppArmorBetaProfileNamePrefix); ok {
		return &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeLocalhost, LocalhostProfile: &name}
	}
	switch value {
	case v1.DeprecatedAppArmorBetaProfileRuntimeDefault:
		return &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeRuntimeDefault}
	case v1.DeprecatedAppArmorBetaProfileNameUnconfined:
		return &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeUnconfined}
	}
	if sc := pod.Spec.SecurityContext; sc != nil {
		return sc.AppArmorProfile
	}
	return nil
}
