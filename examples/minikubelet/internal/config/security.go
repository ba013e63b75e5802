package config

import (
	"errors"
	"fmt"

	"github.com/kubeletkit/kubeletkit/syncloop"
)

// validateSecurity returns an error for each setting that is about security and cannot be
// honoured: an agent that starts without it would be less safe than its configuration says.
func (s *Settings) validateSecurity() (errs []error) {
	if *s.SeccompDefault && s.ContainerRuntimeEndpoint == "" {
		errs = append(errs, errors.New("seccompDefault: the embedded runtime has no default seccomp profile; give a container runtime with --container-runtime-endpoint"))
	}
	if _, err := syncloop.NewSecurity(syncloop.SecurityOptions{AllowedUnsafeSysctls: s.AllowedUnsafeSysctls}); err != nil {
		errs = append(errs, fmt.Errorf("allowedUnsafeSysctls: %w", err))
	}
	if p := s.ImagePullCredentialsVerificationPolicy; p != "" && p != "NeverVerify" {
		errs = append(errs, fmt.Errorf("imagePullCredentialsVerificationPolicy %s: not implemented; use NeverVerify, and the pull policy Always where pods do not trust each other", p))
	}
	return errs
}
