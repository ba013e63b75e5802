package terminal

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Escape returns the text with each character that acts on a terminal, or that begins a
// line, as an escape sequence of Go, such as \x1b. Containers and manifests decide what is
// in messages and annotations.
func Escape(text string) string {
	if strings.IndexFunc(text, func(r rune) bool { return r == utf8.RuneError || !unicode.IsPrint(r) }) < 0 {
		return text
	}
	var b strings.Builder
	for i, size := 0, 0; i < len(text); i += size {
		var r rune
		r, size = utf8.DecodeRuneInString(text[i:])
		if unicode.IsPrint(r) && (r != utf8.RuneError || size > 1) {
			b.WriteString(text[i : i+size])
			continue
		}
		q := strconv.Quote(text[i : i+size])
		b.WriteString(q[1 : len(q)-1])
	}
	return b.String()
}

// EscapeLines is [Escape] for a text of several lines.
func EscapeLines(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = Escape(lines[i])
	}
	return strings.Join(lines, "\n")
}
