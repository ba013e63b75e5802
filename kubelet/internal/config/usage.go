package config

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// UsageError means that the arguments of the program are wrong, as against what they name.
type UsageError struct{ Err error }

func (e *UsageError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *UsageError) Unwrap() error { return e.Err }

// flagError returns the error of the flags with what helps: that a flag of several letters has two
// dashes, or where the flags are explained.
func (p Program) flagError(err error, fs *pflag.FlagSet, args []string) error {
	for _, arg := range args {
		name, _, _ := strings.Cut(strings.TrimPrefix(arg, "-"), "=")
		if len(name) > 1 && name[0] != '-' && arg[0] == '-' && fs.Lookup(name) != nil {
			return fmt.Errorf("there is no flag -%s; did you mean --%s?", name, name)
		}
	}
	return fmt.Errorf("%w; %s --help lists the flags", err, p)
}
