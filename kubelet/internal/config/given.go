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

// NoEffect is [Given].Less of a setting that is not implemented.
const NoEffect = "is not implemented and has no effect"

// givenFields returns the fields of a file that request something, sorted.
func givenFields(file string, content map[string]any) (out []Given) {
	content = withoutZeros(content)
	without := notImplemented("", content)
	var add func(prefix string, fields map[string]any)
	add = func(prefix string, fields map[string]any) {
		for _, name := range slices.Sorted(maps.Keys(fields)) {
			path := prefix + name
			below, isMap := fields[name].(map[string]any)
			switch {
			case path == "apiVersion", path == "kind":
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
		switch {
		case g.Less == "":
		case g.File == "":
			s.Warnings = append(s.Warnings, fmt.Sprintf("flag %s %s", g.Name, g.Less))
		default:
			s.Warnings = append(s.Warnings, fmt.Sprintf("configuration %s: field %s %s", g.File, g.Name, g.Less))
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
