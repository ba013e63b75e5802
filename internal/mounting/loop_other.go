//go:build !linux

package mounting

// DetachLoops does nothing: there are no loop devices.
func DetachLoops(string) error { return nil }
