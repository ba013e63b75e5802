package kubelet

import (
	"slices"

	"github.com/kubeletkit/kubeletkit/kubelet/internal/config"
)

// Config is what the flags, the files that they name, and [Options.Configuration] request, with the options.
type Config struct {
	settings *config.Settings
	opts     Options
}

// Load reads flags of kubelet, without the name of the program, and the files that they name. A flag wins over the
// files, and those over opts.Configuration. The error joins all that is wrong with the settings; it wraps pflag.ErrHelp
// if the flags request help. [ExitCode] of it is 2 if it is the flags that are wrong, as against the files.
func Load(args []string, opts Options) (*Config, error) {
	s, err := opts.program().Parse(args)
	if err != nil {
		return nil, err
	}
	return &Config{s, opts}, nil
}

// NodeName returns the name of the node.
func (c *Config) NodeName() (string, error) { return c.settings.NodeName() }

// RootDir returns the root directory, an absolute path.
func (c *Config) RootDir() string { return c.settings.RootDir }

// Warnings returns what was requested and has no effect, or less than in kubelet. [New] logs it.
func (c *Config) Warnings() []string { return slices.Clone(c.settings.Warnings) }
