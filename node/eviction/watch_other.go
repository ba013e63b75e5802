//go:build !linux

package eviction

import (
	"context"
	"errors"
	"fmt"
)

// Watch implements [Sensor]. Its error wraps [errors.ErrUnsupported].
func (m *Machine) Watch(context.Context, []Threshold, func()) error {
	return fmt.Errorf("eviction: signals of the kernel about memory: %w", errors.ErrUnsupported)
}
