package config

import (
	"errors"
	"fmt"
	"time"

	"github.com/kubeletkit/kubeletkit/node/shutdown"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// The feature gates of graceful shutdown; both are on by default.
const (
	shutdownGate = "GracefulNodeShutdown"
	priorityGate = "GracefulNodeShutdownBasedOnPodPriority"
)

// gateOn reports whether the gate is on.
func (s *Settings) gateOn(name string) bool {
	if on, given := s.FeatureGates[name]; given {
		return on
	}
	g, _ := findGate(name)
	return g.on
}

// ShutdownPeriods returns the periods in which pods end before a shutdown of the machine; none if the machine does not
// wait for them.
func (s *Settings) ShutdownPeriods() shutdown.Periods {
	if !s.gateOn(shutdownGate) {
		return nil
	}
	if len(s.ShutdownGracePeriodByPodPriority) == 0 {
		return shutdown.Classes(s.ShutdownGracePeriod.Duration, s.ShutdownGracePeriodCriticalPods.Duration)
	}
	var periods []shutdown.Period
	for _, p := range s.ShutdownGracePeriodByPodPriority {
		periods = append(periods, shutdown.Period{Priority: p.Priority,
			GracePeriod: podspec.Seconds(p.ShutdownGracePeriodSeconds)})
	}
	return shutdown.ByPriority(periods...)
}

// DrainPeriods returns the periods of a drain in the order of a shutdown: those of ShutdownPeriods, or if there are
// none, critical pods after all others, each in its own grace period.
func (s *Settings) DrainPeriods() shutdown.Periods {
	if periods := s.ShutdownPeriods(); len(periods) > 0 {
		return periods
	}
	return shutdown.Unlimited()
}

// ShutdownStateDir returns the directory of kubelet's file with the times of the last shutdown; "" for none.
func (s *Settings) ShutdownStateDir() string {
	if !s.gateOn(priorityGate) {
		return ""
	}
	return s.RootDir
}

// validateShutdown judges as kubelet does. It also refuses negative periods of priorities, which a kubelet would take
// for 0.
func (s *Settings) validateShutdown() (errs []error) {
	total, critical, priorities := s.ShutdownGracePeriod.Duration, s.ShutdownGracePeriodCriticalPods.Duration,
		s.ShutdownGracePeriodByPodPriority
	if s.gateOn(shutdownGate) {
		if critical > total {
			errs = append(errs, fmt.Errorf("shutdownGracePeriodCriticalPods %s: must not be more than "+
				"shutdownGracePeriod %s", critical, total))
		}
		for field, d := range map[string]time.Duration{"shutdownGracePeriod": total,
			"shutdownGracePeriodCriticalPods": critical} {
			if d < 0 || d > 0 && d < time.Second {
				errs = append(errs, fmt.Errorf("%s %s: must be 0 or at least 1s", field, d))
			}
		}
	} else if total > 0 || critical > 0 {
		errs = append(errs,
			fmt.Errorf("shutdownGracePeriod and shutdownGracePeriodCriticalPods need the feature gate %s",
				shutdownGate))
	}
	if len(priorities) == 0 {
		return errs
	}
	if !s.gateOn(priorityGate) {
		errs = append(errs, fmt.Errorf("shutdownGracePeriodByPodPriority needs the feature gate %s", priorityGate))
	} else if total > 0 || critical > 0 {
		errs = append(errs, errors.New("shutdownGracePeriodByPodPriority: cannot be given beside "+
			"shutdownGracePeriod and shutdownGracePeriodCriticalPods"))
	}
	for _, p := range priorities {
		if n := p.ShutdownGracePeriodSeconds; n < 0 || n > podspec.MaxSeconds {
			errs = append(errs, fmt.Errorf("shutdownGracePeriodByPodPriority: shutdownGracePeriodSeconds %d of "+
				"priority %d: must not be negative, nor more than %d", n, p.Priority, podspec.MaxSeconds))
		}
	}
	return errs
}
