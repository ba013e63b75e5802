package nfs

import (
	"github.com/kubeletkit/kubeletkit/internal/mounting"
	"github.com/kubeletkit/kubeletkit/internal/safefile"
)

// WithPrograms returns the options with programs of a test instead of those of the machine.
func WithPrograms(opts Options, run mounting.Run, has bool, size func(dir string) (safefile.Disk, error)) Options {
	opts.run, opts.has, opts.size = run, func(string) bool { return has }, size
	return opts
}

// Idle reports whether all calls have returned.
func (p *Plugin) Idle() bool { return p.mounts.Idle() && p.stats.Idle() }
