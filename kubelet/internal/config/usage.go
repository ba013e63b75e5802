package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
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
	if near := NearFlags(err, fs); near != "" {
		return fmt.Errorf("%w; did you mean %s?", err, near)
	}
	return fmt.Errorf("%w; %s help run lists the flags", err, p)
}

// NearFlags returns the flags whose names are like that of an error about a flag that does not exist, "" if there are
// none.
func NearFlags(err error, fs *pflag.FlagSet) string {
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok || unknown.GetSpecifiedShortnames() != "" {
		return ""
	}
	var names []string
	fs.VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	near := Near(unknown.GetSpecifiedName(), names)
	for i := range near {
		near[i] = "--" + near[i]
	}
	return strings.Join(near, " or ")
}

// Near returns the names that are like the name, or begin with it, sorted.
func Near(name string, names []string) []string {
	all := &cobra.Command{SuggestionsMinimumDistance: 2} // it has the comparison of names
	for _, n := range names {
		all.AddCommand(&cobra.Command{Use: n, Run: func(*cobra.Command, []string) {}})
	}
	near := all.SuggestionsFor(name)
	slices.Sort(near)
	return slices.Compact(near)
}
