package prober

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"
)

func TestExpand(t *testing.T) {
	env := []v1.EnvVar{{Name: "A", Value: "one"}, {Name: "B", Value: "$(A)"}, {Name: "F", ValueFrom: &v1.EnvVarSource{}}}
	for in, want := range map[string]string{
		"plain":       "plain",
		"$(A)":        "one",
		"x$(A)y$(A)z": "xoneyonez",
		"$(B)":        "$(A)", // values are not expanded again
		"$(F)":        "",     // not known here
		"$(NONE)":     "$(NONE)",
		"$$(A)":       "$(A)",
		"$$$(A)":      "$one",
		"$A":          "$A",
		"$(A":         "$(A",
		"end$":        "end$",
		"$()":         "$()",
		"":            "",
	} {
		assert.Equal(t, []string{want}, expandAll([]string{in}, env), in)
	}
}

func FuzzExpand(f *testing.F) {
	for _, s := range []string{"$(A)", "$$(A)", "$$$", "$(", "a$(b$(A))"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		// Without variables only $$ is changed, and what has no $ is untouched.
		out := expandAll([]string{s}, nil)[0]
		if !strings.Contains(s, "$") && out != s {
			t.Fatalf("%q became %q", s, out)
		}
		if !strings.Contains(s, "$$") && out != s {
			t.Fatalf("%q became %q", s, out)
		}
	})
}
