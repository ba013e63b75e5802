package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/kubeletkit/kubeletkit/pleg"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/cri"
)

// eventedPLEG is the one feature gate that has an effect here: whether changes in
// the runtime are learned of by its events. Unlike kubelet's it is on by default;
// a runtime without events is noticed.
const eventedPLEG = "EventedPLEG"

// gates is the value of --feature-gates, as kubelet takes it: "A=true,B=false".
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

// pleg returns the generator that the feature gates ask for.
func (s *settings) pleg(rt *cri.Runtime, cache runtime.StatusCache, opts pleg.Options) pleg.Generator {
	if s.evented() {
		return pleg.NewEvented(rt, cache, pleg.EventedOptions{Options: opts})
	}
	return pleg.NewGeneric(rt, cache, opts)
}

// evented reports whether the event stream of the runtime is to be used.
func (s *settings) evented() bool {
	on, given := s.FeatureGates[eventedPLEG]
	return on || !given
}
