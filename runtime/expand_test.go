package runtime_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/kubeletkit/kubeletkit/runtime"
)

func TestExpand(t *testing.T) {
	vars := map[string]string{"A": "1", "B": "$(A)", "EMPTY": "", "a b": "spaced"}
	lookup := func(name string) (string, bool) { v, ok := vars[name]; return v, ok }
	for in, want := range map[string]string{
		"":                "",
		"plain":           "plain",
		"$(A)":            "1",
		"x$(A)y$(A)":      "x1y1",
		"$(B)":            "$(A)", // not expanded again
		"$(EMPTY)|":       "|",
		"$(a b)":          "spaced",
		"$(NOPE)":         "$(NOPE)",
		"$$(A)":           "$(A)",
		"$$$(A)":          "$1",
		"$$$$(A)":         "$$(A)",
		"$":               "$",
		"$$":              "$",
		"a$":              "a$",
		"$A":              "$A",
		"${A}":            "${A}",
		"$é$(A)":          "$é1",
		"$()":             "$()",
		"$(A":             "$(A",
		"$(A$$":           "$(A$",
		"$(x$(A)":         "$(x$(A)", // a name runs to the first parenthesis
		"$(A))":           "1)",
		"$-$(A)":          "$-1",
		"\xff$(A)$\xfe$$": "\xff1$\xfe$",
	} {
		assert.Equal(t, want, runtime.Expand(in, lookup), "%q", in)
	}
}

func FuzzExpand(f *testing.F) {
	for _, s := range []string{"", "$", "$$", "$(A)", "$(A", "x$$(A)$y$(B)z"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		none := func(string) (string, bool) { return "", false }
		// What is escaped comes out as it was, whatever is known.
		escaped := strings.ReplaceAll(s, "$", "$$")
		if got := runtime.Expand(escaped, func(string) (string, bool) { return "!", true }); got != s {
			t.Errorf("Expand(%q) = %q, want %q", escaped, got, s)
		}
		// Nothing is lost where nothing is known, but the escapes.
		if got := runtime.Expand(s, none); strings.ReplaceAll(got, "$", "") != strings.ReplaceAll(s, "$", "") {
			t.Errorf("Expand(%q) = %q", s, got)
		}
		// References are replaced as a whole, or not at all.
		var names []string
		runtime.Expand(s, func(name string) (string, bool) { names = append(names, name); return "", true })
		for _, name := range names {
			if !strings.Contains(s, "$("+name+")") {
				t.Errorf("Expand(%q) has looked for %q", s, name)
			}
		}
	})
}
