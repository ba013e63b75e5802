package local

import "github.com/kubeletkit/kubeletkit/internal/mounting"

// WithPrograms returns the options with programs and devices of a test instead of those of the machine.
func WithPrograms(run mounting.Run, isDevice func(path string) (bool, error)) Options {
	return Options{run: run, isDevice: isDevice}
}

// Idle reports whether all calls have returned.
func (p *Plugin) Idle() bool { return p.calls.Idle() }
