package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// Given is a setting that a flag or a file has, with a value that requests something.
type Given struct {
	// Name is a flag, as --max-pods, or the dotted path of a field, as logging.verbosity.
	Name string
	// File is the configuration with the field; "" for a flag.
	File string
	// Less says why the setting has no effect, or less than in kubelet; "" if it acts.
	Less string
}

// The values of [Given].Less of a setting that is not as it should be.
const (
	// NoEffect is that of a setting that is not implemented.
	NoEffect = "is not implemented and has no effect"
	// Unknown is that of a field that a KubeletConfiguration does not have.
	Unknown = "is unknown and has no effect"
	// Repeated is that of a field that a file has more than once.
	Repeated = "is given more than once, and the last value counts"
)

// Warning returns the warning about a setting that has no effect or less than in kubelet, unless several settings
// have it together.
func (g Given) Warning() string {
	if g.File == "" {
		return fmt.Sprintf("flag %s %s", g.Name, g.Less)
	}
	return fmt.Sprintf("configuration %s: field %s %s", g.File, g.Name, g.Less)
}

// givenFields returns the fields of a file that request something, sorted, and then those with problems.
func givenFields(file string, content map[string]any, problems []Given) (out []Given) {
	has := func(path string) bool {
		return slices.ContainsFunc(problems, func(g Given) bool { return g.Name == path })
	}
	content = withoutZeros(content)
	without := notImplemented("", content)
	var add func(prefix string, fields map[string]any)
	add = func(prefix string, fields map[string]any) {
		for _, name := range slices.Sorted(maps.Keys(fields)) {
			path := prefix + name
			below, isMap := fields[name].(map[string]any)
			switch {
			case path == "apiVersion", path == "kind", has(path):
			case slices.Contains(without, path) && !strings.HasPrefix(path, gatesField): // see warnGates
				out = append(out, Given{Name: path, File: file, Less: NoEffect})
			case isMap && !slices.Contains(strings.Fields(implemented), path):
				add(path+".", below)
			default:
				out = append(out, Given{Name: path, File: file})
			}
		}
	}
	add("", content)
	for _, g := range problems {
		g.File = file
		out = append(out, g)
	}
	return out
}

// givenFlags returns the flags that were given.
func givenFlags(fs *pflag.FlagSet) (out []Given) {
	fs.Visit(func(f *pflag.Flag) {
		g := Given{Name: "--" + f.Name}
		if _, ok := f.Value.(ignored); ok {
			g.Less = NoEffect
		}
		out = append(out, g)
	})
	return out
}

// warnGiven adds a warning for each setting that has no effect.
func (s *Settings) warnGiven() {
	for _, g := range s.Given {
		if g.Less != "" {
			s.Warnings = append(s.Warnings, g.Warning())
		}
	}
}

// less adds a warning about the settings of these names, which may be given or not.
func (s *Settings) less(warning string, names ...string) {
	s.Warnings = append(s.Warnings, warning)
	for i, g := range s.Given {
		if slices.Contains(names, g.Name) {
			s.Given[i].Less = warning
		}
	}
}
