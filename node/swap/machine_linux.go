package swap

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// ReadMachine returns the sizes of this machine.
func ReadMachine() (Machine, error) {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return Machine{}, fmt.Errorf("reading the memory of the machine: %w", err)
	}
	unit := int64(max(info.Unit, 1))
	return Machine{Memory: int64(info.Totalram) * unit, Swap: int64(info.Totalswap) * unit}, nil
}
