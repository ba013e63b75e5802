package scsi

import "github.com/kubeletkit/kubeletkit/internal/mounting"

// WithMachine returns the options with the programs and the files of a test instead of those of the machine.
func WithMachine(opts Options, run mounting.Run, root string) Options {
	opts.run, opts.root = run, root
	return opts
}

// Idle reports whether all calls have returned.
func (p *Plugin) Idle() bool { return p.calls.Idle() }
