//go:build !linux

package oom

import (
	"errors"
	"fmt"
)

// OpenKmsg opens /dev/kmsg, which only Linux has.
func OpenKmsg() (Log, error) { return nil, fmt.Errorf("/dev/kmsg: %w", errors.ErrUnsupported) }

func cgroupOf(int, string) string { return "" }
