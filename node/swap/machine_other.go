//go:build !linux

package swap

import (
	"errors"
	"fmt"
)

// ReadMachine returns the sizes of this machine, on Linux.
func ReadMachine() (Machine, error) {
	return Machine{}, fmt.Errorf("reading the memory of the machine: %w", errors.ErrUnsupported)
}
