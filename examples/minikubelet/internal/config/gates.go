package config

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// eventedPLEG is the only feature gate that has an effect here: whether the PLEG uses the
// events of the runtime. Unlike kubelet's it is on by default; a runtime without events is
// relisted every second.
const eventedPLEG = "EventedPLEG"

// gates is the value of --feature-gates, in kubelet's form: "A=true,B=false".
type gates struct{ target *map[string]bool }

func (g gates) String() string {
	if g.target == nil {
		return ""
	}
	var out []string
	for _, name := range slices.Sorted(maps.Keys(*g.target)) {
		out = append(out, fmt.Sprintf("%s=%t", name, (*g.target)[name]))
	}
	return strings.Join(out, ",")
}

func (g gates) Set(text string) error {
	set := maps.Clone(*g.target)
	if set == nil {
		set = map[string]bool{}
	}
	for part := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		on, err := strconv.ParseBool(strings.TrimSpace(value))
		if name == "" || err != nil {
			return fmt.Errorf("%q: must be a name and true or false, as in %s=false", part, eventedPLEG)
		}
		set[strings.TrimSpace(name)] = on
	}
	*g.target = set
	return nil
}

func (gates) Type() string { return "name=bool,..." }

// Evented reports whether the event stream of the runtime is to be used.
func (s *Settings) Evented() bool {
	on, given := s.FeatureGates[eventedPLEG]
	return on || !given
}
