package kubelet

import (
	"slices"

	"github.com/kubeletkit/kubeletkit/kubelet/internal/config"
)

// UsageError means that arguments are wrong, as against the files that they name.
type UsageError = config.UsageError

// Config is what the flags, the files that they name, and [Options.Configuration] request.
type Config struct{ settings *config.Settings }

// Load reads flags of kubelet, without the name of the program, and the files that they name. A flag wins over the
// files, and those over opts.Configuration. The error is a [*UsageError] if the flags are wrong, and wraps
// [pflag.ErrHelp] if they request help. It joins all that is wrong with the settings.
//
// [pflag.ErrHelp]: https://pkg.go.dev/github.com/spf13/pflag#pkg-variables
func Load(args []string, opts Options) (*Config, error) {
	s, err := opts.program().Parse(args)
	if err != nil {
		return nil, err
	}
	return &Config{s}, nil
}

// NodeName returns the name of the node.
func (c *Config) NodeName() (string, error) { return c.settings.NodeName() }

// RootDir returns the root directory, an absolute path.
func (c *Config) RootDir() string { return c.settings.RootDir }

// Warnings returns what was requested and has no effect, or less than in kubelet. [New] logs it.
func (c *Config) Warnings() []string { return slices.Clone(c.settings.Warnings) }
