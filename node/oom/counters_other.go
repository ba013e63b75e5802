//go:build !linux

package oom

import (
	"errors"
	"fmt"
)

// OpenCounters opens the counts of kills in cgroups, which only Linux has.
func OpenCounters() (Counters, error) { return nil, fmt.Errorf("cgroups: %w", errors.ErrUnsupported) }
