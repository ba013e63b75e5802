package e2e

import (
	"bytes"
	"math/rand/v2"
	"regexp"
	"slices"
)

// textMutations change the text of a manifest, as slips of editors and scripts do.
var textMutations = []func(r *rand.Rand, text []byte) []byte{
	func(r *rand.Rand, text []byte) []byte { return text[:r.IntN(len(text))] },
	onLine(func(_ *rand.Rand, line []byte) [][]byte { return nil }),
	onLine(func(_ *rand.Rand, line []byte) [][]byte { return [][]byte{line, line} }),
	onLine(func(_ *rand.Rand, line []byte) [][]byte { return [][]byte{append([]byte("  "), line...)} }),
	onLine(func(_ *rand.Rand, line []byte) [][]byte { return [][]byte{bytes.TrimPrefix(line, []byte("  "))} }),
	onLine(func(_ *rand.Rand, line []byte) [][]byte { return [][]byte{append([]byte("\t"), line...)} }),
	onLine(func(_ *rand.Rand, line []byte) [][]byte { return [][]byte{append([]byte("# "), line...)} }),
	onLine(func(_ *rand.Rand, line []byte) [][]byte { return [][]byte{bytes.ToUpper(line)} }),
	onLine(func(_ *rand.Rand, line []byte) [][]byte {
		return [][]byte{bytes.Replace(line, []byte(": "), []byte(":"), 1)}
	}),
	onLine(func(r *rand.Rand, line []byte) [][]byte { return [][]byte{line, []byte(pick(r, between))} }),
	onLine(func(r *rand.Rand, line []byte) [][]byte {
		return [][]byte{scalar.ReplaceAll(line, []byte("$1 "+pick(r, scalars)+"$3"))}
	}),
	// a character more, less or another one
	func(r *rand.Rand, text []byte) []byte {
		i := r.IntN(len(text))
		return slices.Concat(text[:i], []byte(pick(r, characters)), text[i+r.IntN(2):])
	},
	func(r *rand.Rand, text []byte) []byte {
		return slices.Concat([]byte(pick(r, heads)), text, []byte(pick(r, tails)))
	},
	func(r *rand.Rand, text []byte) []byte { return slices.Concat(text, []byte(pick(r, tails)), text) },
	func(_ *rand.Rand, text []byte) []byte { return bytes.ReplaceAll(text, []byte("\n"), []byte("\r\n")) },
	// a field of the JSON, twice or with another name
	func(r *rand.Rand, text []byte) []byte {
		found := member.FindAllIndex(text, -1)
		if len(found) == 0 {
			return text
		}
		at := found[r.IntN(len(found))]
		return slices.Concat(text[:at[0]], []byte(pick(r, members)), text[at[0]:])
	},
}

var (
	scalar  = regexp.MustCompile(`^([^:]*:) ?([^{\[,"]+)(,?)$`)
	scalars = []string{"~", "null", "\"\"", "yes", "\"yes\"", "off", "0x10", "0o7", "010", "1_000", "80.0", "8e1", ".5", "-0", "1:30", "2001-01-01",
		"!!str 1", "!!int 1", "!!binary aGk=", "&a x", "*a", "|", ">-", "[]", "{}", "'a''b'", "\"\\u00e9\"", "@", "`", "%", "- a", "99999999999999999999", "1e400"}
	between    = []string{"", "---", "...", "unknown: field", "  unknown: {a: b}", "<<: {kind: Pod}", "? a", "a: b: c", "!!map {}", "- x", "\x00", "\xff", "\u2028"}
	characters = []string{"", " ", "\n", "\t", ",", ":", "{", "}", "[", "]", "\"", "'", "#", "&", "*", "!", "|", ">", "%", "@", "-", "\\", "\x00", "\x7f", "\xff", "\u00a0", "\ufeff", "é", "1", "."}
	heads      = []string{"\ufeff", "---\n", "--- ", "---\n---\n", "# head\n---\n", "%YAML 1.1\n---\n", "%YAML 1.2\n---\n", "%TAG ! tag:x,2000:\n---\n", "...\n", " ", "\n\n", "\t", "// comment\n", "\x00"}
	tails      = []string{"", "}", "}}}", "\n---\n", "\n---", "\n...\n", "\n...\nnothing\n", "\n...\n{", "\n--- x\n", "\n---\nkind: Secret\n", "\n# end", "\x00", " ,", "\n]", "\n---\n: [", "\n{}"}
	member     = regexp.MustCompile(`"[a-zA-Z]+":`)
	members    = []string{`"metadata":{"labels":{"x":"y"}},`, `"name":"other",`, `"unknown":1,`, `"Name":"upper",`, `"kind":"Pod",`, `"KIND":"Pod",`, `"priority":80.0,`, `"containers":[{"tty":true}],`, `,`, `"a":1e999,`, "// c\n", `"spec":null,`, `"":{},`}
)

func pick(r *rand.Rand, of []string) string { return of[r.IntN(len(of))] }

// onLine changes one line of a text.
func onLine(change func(r *rand.Rand, line []byte) [][]byte) func(r *rand.Rand, text []byte) []byte {
	return func(r *rand.Rand, text []byte) []byte {
		lines := bytes.Split(text, []byte("\n"))
		i := r.IntN(len(lines))
		return bytes.Join(slices.Concat(lines[:i], change(r, lines[i]), lines[i+1:]), []byte("\n"))
	}
}
