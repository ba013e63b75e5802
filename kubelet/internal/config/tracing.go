package config

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// tracingField is the field of a [TracingConfiguration].
const tracingField = "tracing"

// maxSamplingRate is the rate at which each trace is recorded.
const maxSamplingRate = 1_000_000

// validateTracing returns what is wrong with the tracing, by kubelet's rules.
func (s *Settings) validateTracing() error {
	if s.Tracing == nil {
		return nil
	}
	var errs []error
	if rate := s.Tracing.SamplingRatePerMillion; rate != nil && (*rate < 0 || *rate > maxSamplingRate) {
		errs = append(errs, fmt.Errorf("tracing.samplingRatePerMillion %d: must be from 0 to %d", *rate,
			maxSamplingRate))
	}
	if s.Tracing.Endpoint != nil {
		endpoint := *s.Tracing.Endpoint
		if !strings.Contains(endpoint, "//") {
			endpoint = "dns://" + endpoint
		}
		if u, err := url.Parse(endpoint); err != nil {
			errs = append(errs, fmt.Errorf("tracing.endpoint: %w", err))
		} else if !slices.Contains([]string{"dns", "unix", "unix-abstract"}, u.Scheme) {
			errs = append(errs, fmt.Errorf("tracing.endpoint %q: the scheme must be dns, unix, unix-abstract or none",
				*s.Tracing.Endpoint))
		}
	}
	return errors.Join(errs...)
}

// warnTracing adds a warning if the program has no tracer.
func (s *Settings) warnTracing() {
	if s.Tracing != nil && !s.program.Tracing {
		s.less("tracing: no effect: this program has no tracer; see the module metrics/tracing", tracingField)
	}
}
