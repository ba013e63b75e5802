//go:build !linux

package loop

import "context"

// Hold does nothing: there are no loop devices.
func Hold(context.Context, string, string) error { return nil }

// Release does nothing.
func Release(context.Context, string) error { return nil }
