//go:build !linux

package loop

// Hold does nothing: there are no loop devices.
func Hold(string, string) error { return nil }

// Release does nothing.
func Release(string) error { return nil }
