package config

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

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
	if s.ProtectKernelDefaults {
		for _, err := range kernelSettings(os.ReadFile) {
			errs = append(errs, fmt.Errorf("protectKernelDefaults: %w", err))
		}
	}
	return errs
}

// kernelSettings returns an error for each setting of the kernel that differs from what
// kubelet requires (setupKernelTunables in pkg/kubelet/cm).
func kernelSettings(readFile func(string) ([]byte, error)) (errs []error) {
	want := map[string]int{
		"vm/overcommit_memory":      1,
		"vm/panic_on_oom":           0,
		"kernel/panic":              10,
		"kernel/panic_on_oops":      1,
		"kernel/keys/root_maxkeys":  1_000_000,
		"kernel/keys/root_maxbytes": 25_000_000,
	}
	names := make([]string, 0, len(want))
	for name := range want {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		data, err := readFile("/proc/sys/" + name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		value := strings.TrimSpace(string(data))
		if n, err := strconv.Atoi(value); err != nil || n != want[name] {
			errs = append(errs, fmt.Errorf("sysctl %s is %s, and must be %d", strings.ReplaceAll(name, "/", "."), value, want[name]))
		}
	}
	return errs
}
