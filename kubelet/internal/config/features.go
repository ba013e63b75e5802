package config

import (
	_ "embed"
	"strings"
)

// stages has the stage of each gate that is not GA.
//
//go:embed feature_stages.txt
var stages string

// Feature is a feature gate, with whether the feature is on.
type Feature struct {
	// Stage is "ALPHA", "BETA" or "DEPRECATED", or "" for GA.
	Name, Stage string
	Enabled     bool
}

// Features returns all feature gates. A feature that is not implemented is not on, whatever its gate has.
func (s *Settings) Features() (list []Feature) {
	stageOf, stage := map[string]string{}, ""
	for line := range strings.Lines(stages) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		for _, word := range strings.Fields(line) {
			if name, found := strings.CutSuffix(word, ":"); found {
				stage = name
			} else {
				stageOf[word] = stage
			}
		}
	}
	for name, g := range eachGate() {
		f := Feature{Name: name, Stage: stageOf[name]}
		on, given := s.FeatureGates[name]
		switch {
		case g.here == "always", name == eventedPLEG && s.Evented():
			f.Enabled = true
		case g.here != "missing":
			f.Enabled = given && on || !given && g.on
		}
		list = append(list, f)
	}
	return list
}
