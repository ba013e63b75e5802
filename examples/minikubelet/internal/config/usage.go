package config

import (
	"strings"

	"github.com/spf13/pflag"
)

// UsageError means that the arguments of the program are wrong, as against what they name.
type UsageError struct{ Err error }

func (e *UsageError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *UsageError) Unwrap() error { return e.Err }

// flagHint returns what helps after an error of the flags: that a flag of several letters has two
// dashes, or where the flags are explained.
func flagHint(fs *pflag.FlagSet, args []string) string {
	for _, arg := range args {
		name, _, _ := strings.Cut(strings.TrimPrefix(arg, "-"), "=")
		if len(name) > 1 && name[0] != '-' && arg[0] == '-' && fs.Lookup(name) != nil {
			return "did you mean --" + name + "?"
		}
	}
	return "minikubelet --help lists the flags"
}
