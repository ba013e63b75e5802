package config

import (
	"errors"
	"fmt"
	"maps"
	goruntime "runtime"
	"slices"
	"strings"

	"k8s.io/component-helpers/node/util/sysctl"

	"github.com/kubeletkit/kubeletkit/syncloop"
)

// validateSecurity returns an error for each setting that is about security and cannot be
// honoured: an agent that starts without it would be less safe than its configuration says.
func (s *Settings) validateSecurity() (errs []error) {
	if *s.SeccompDefault && s.Embedded {
		errs = append(errs, errors.New("seccompDefault: the embedded runtime has no default seccomp profile; give a "+
			"container runtime with --container-runtime-endpoint"))
	}
	if _, err := syncloop.NewSecurity(syncloop.SecurityOptions{
		AllowedUnsafeSysctls: s.AllowedUnsafeSysctls}); err != nil {
		errs = append(errs, fmt.Errorf("allowedUnsafeSysctls: %w", err))
	}
	errs = append(errs, s.validatePodSysctls()...)
	if err := s.validateVerification(); err != nil {
		errs = append(errs, err)
	}
	return errs
}

// validatePodSysctls returns an error for each default of pods that is no sysctl with a value for each pod.
func (s *Settings) validatePodSysctls() (errs []error) {
	const gate = "DefaultPodSysctls"
	if len(s.DefaultPodSysctls) == 0 {
		return nil
	}
	if !s.gateOn(gate) {
		errs = append(errs, fmt.Errorf("defaultPodSysctls: needs the feature gate %s", gate))
	}
	if s.Embedded || goruntime.GOOS != "linux" {
		errs = append(errs, errors.New("defaultPodSysctls: only pods of a container runtime on Linux have sysctls"))
	}
	seen := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(s.DefaultPodSysctls)) {
		_, err := syncloop.NewSecurity(syncloop.SecurityOptions{AllowedUnsafeSysctls: []string{name}})
		normalized := sysctl.NormalizeName(name)
		if err == nil && strings.Contains(name, "*") {
			err = fmt.Errorf("sysctl %q must be one", name)
		}
		if err == nil && seen[normalized] {
			err = fmt.Errorf("sysctl %q is there twice", normalized)
		}
		if seen[normalized] = true; err != nil {
			errs = append(errs, fmt.Errorf("defaultPodSysctls: %w", err))
		}
	}
	return errs
}
