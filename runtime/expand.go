package runtime

import "strings"

// Expand replaces each $(NAME) in s by what lookup has for the name, and leaves
// those it does not know as they are. "$$" stands for a "$" that begins no
// reference; any other "$" stands for itself, also one whose parenthesis is never
// closed. Values are not expanded again (API
// reference, container command).
func Expand(s string, lookup func(name string) (value string, ok bool)) string {
	var b strings.Builder
	for {
		i := strings.IndexByte(s, '$')
		if i < 0 || i == len(s)-1 {
			b.WriteString(s)
			return b.String()
		}
		b.WriteString(s[:i])
		s = s[i:]
		switch s[1] {
		case '$':
			b.WriteByte('$')
			s = s[2:]
		case '(':
			end := strings.IndexByte(s, ')')
			if end < 0 {
				b.WriteString("$(")
				s = s[2:]
				continue
			}
			if value, ok := lookup(s[2:end]); ok {
				b.WriteString(value)
			} else {
				b.WriteString(s[:end+1])
			}
			s = s[end+1:]
		default:
			b.WriteByte('$')
			s = s[1:]
		}
	}
}
