package config

import (
	"errors"
	"fmt"

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
	if err := s.validateVerification(); err != nil {
		errs = append(errs, err)
	}
	return errs
}
