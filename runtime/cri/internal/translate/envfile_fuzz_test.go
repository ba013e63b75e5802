package translate

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// Containers write files with variables. Each value is a part of the text between two quotes, and a
// file that is written with the values has them again.
func FuzzEnvFile(f *testing.F) {
	for _, text := range []string{
		"A='one'\nK='two'\n", "# K='no'\r\n\r\n \t K='yes' # why\r\n", "A='1\nB=2'\nK='x\n# y\n\nz'\n",
		"A= 'x'\nK='y'x", "A'B='x'\n=\n", "K ='x'", "K='x", "\n=''\n", "K='a\r\nb'\r\nK='c'", "K='\r\r\n'",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		values, err := parseEnvFile(text)
		unix := strings.ReplaceAll(text, "\r\n", "\n")
		if err != nil && !strings.Contains(err.Error(), "invalid environment variable format at line ") {
			t.Fatal(err)
		}
		var again strings.Builder
		for _, name := range slices.Sorted(maps.Keys(values)) {
			value := values[name]
			switch {
			case name == "" || strings.ContainsAny(name, "=\n") || strings.TrimRight(name, " \t") != name ||
				strings.TrimLeft(name, " \t") != name || name[0] == '#':
				t.Fatalf("a variable has the name %q", name)
			case strings.Contains(value, "'"):
				t.Fatalf("a variable has the value %q", value)
			case value != "" && !strings.Contains(unix, name+"='"+value+"'"):
				t.Fatalf("%q has no %s with the value %q", text, name, value)
			}
			again.WriteString(name + "='" + value + "' # comment\n")
		}
		same, err := parseEnvFile(strings.ReplaceAll(again.String(), "\n", "\r\n"))
		if err != nil || !maps.Equal(values, same) {
			t.Fatalf("%q became %q: %v", values, same, err)
		}
		// What follows an error does not matter for what is before it.
		if more, _ := parseEnvFile(unix + "\n=broken\nNEW='x'"); err == nil && len(more) < len(values) {
			t.Fatalf("%q and %q", values, more)
		}
	})
}
