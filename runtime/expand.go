package runtime

import "strings"

// Expand replaces each $(NAME) in s with the value that lookup returns for the name.
// A reference to an unknown name stays as it is. "$$" is an escaped "$". Any other "$"
// is literal, also in a reference that is not closed. Values are not expanded again.
// (API reference, command of a container.)
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
