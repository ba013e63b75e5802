package podspec_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/kubeletkit/kubeletkit/internal/testenv"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
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
		assert.Equal(t, want, podspec.Expand(in, lookup), "%q", in)
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
		if got := podspec.Expand(escaped, func(string) (string, bool) { return "!", true }); got != s {
			t.Errorf("Expand(%q) = %q, want %q", escaped, got, s)
		}
		// Nothing is lost where nothing is known, but the escapes.
		if got := podspec.Expand(s, none); strings.ReplaceAll(got, "$", "") != strings.ReplaceAll(s, "$", "") {
			t.Errorf("Expand(%q) = %q", s, got)
		}
		// References are replaced as a whole, or not at all.
		var names []string
		podspec.Expand(s, func(name string) (string, bool) { names = append(names, name); return "", true })
		for _, name := range names {
			if !strings.Contains(s, "$("+name+")") {
				t.Errorf("Expand(%q) has looked for %q", s, name)
			}
		}
	})
}

func TestExpandLimit(t *testing.T) {
	lookup := func(string) (string, bool) { return "12345", true }
	got, err := podspec.ExpandLimit("a$(X)b$$", 8, lookup)
	assert.NoError(t, err)
	assert.Equal(t, "a12345b$", got)
	for _, in := range []string{"a$(X)b$$", strings.Repeat("$(X)", 1<<20), "12345678"} {
		_, err = podspec.ExpandLimit(in, 7, lookup)
		assert.ErrorIs(t, err, podspec.ErrTooLong)
	}
}

// Each reference that is not closed was looked for to the end of the text: this took minutes.
func TestExpandManyReferencesThatAreNotClosed(t *testing.T) {
	s := ")" + strings.Repeat("$(", 5<<20)
	var got string
	took := testenv.CPUTime(t, func() { got = podspec.Expand(s, func(string) (string, bool) { return "", false }) })
	assert.Equal(t, s, got)
	assert.Less(t, took, 10*time.Second)
}
