package csidriver

import "fmt"

// Violations returns what a CO has done that it must not do, with what it has done to drivers in the same directory
// before.
func (d *Driver) Violations() []string { return d.volumes.violations() }

// violation adds one.
func (d *Driver) violation(method, id, format string, args ...any) {
	d.volumes.violate(fmt.Sprintf("%s: volume %s: ", method, id) + fmt.Sprintf(format, args...))
}
