package podspec

import (
	"errors"
	"fmt"
	"strings"
)

// MaxArguments is the maximum size of the environment, and that of the arguments, of a
// process in bytes. Linux starts no process if both together are larger (fs/exec.c, three
// quarters of _STK_LIM). Variables that refer to others several times reach any size with a
// small spec.
const MaxArguments = 6 << 20

// ErrTooLong means that a text is longer than its limit.
var ErrTooLong = errors.New("too long")

// Expand replaces each $(NAME) in s with the value that lookup returns for the name.
// A reference to an unknown name stays as it is. "$$" is an escaped "$". Any other "$"
// is literal, also in a reference that is not closed. Values are not expanded again.
// (API reference, command of a container.)
//
// The result may be much longer than s; see [ExpandLimit].
func Expand(s string, lookup func(name string) (value string, ok bool)) string {
	var b strings.Builder
	expand(s, lookup, func(part string) bool { b.WriteString(part); return true })
	return b.String()
}

// ExpandLimit is [Expand] for texts that are not trusted. If the result would be longer than
// limit, in bytes, it returns [ErrTooLong]. It takes no more memory than that.
func ExpandLimit(s string, limit int, lookup func(name string) (value string, ok bool)) (string, error) {
	var b strings.Builder
	fits := true
	expand(s, lookup, func(part string) bool {
		if fits = b.Len()+len(part) <= limit; fits {
			b.WriteString(part)
		}
		return fits
	})
	if !fits {
		return "", fmt.Errorf("%w: with its variables it has more than %d bytes", ErrTooLong, limit)
	}
	return b.String(), nil
}

// expand passes the parts of the result to add, until it returns false. The time is
// proportional to the lengths of s and of the result.
func expand(s string, lookup func(name string) (value string, ok bool), add func(part string) bool) {
	last := strings.LastIndexByte(s, ')')
	for at := 0; ; {
		i := strings.IndexByte(s[at:], '$')
		if i < 0 || at+i == len(s)-1 {
			add(s[at:])
			return
		}
		if !add(s[at : at+i]) {
			return
		}
		at += i
		part, next := "$", at+1
		switch {
		case s[next] == '$':
			next++
		case s[next] == '(' && last < next: // not closed
			part, next = "$(", next+1
		case s[next] == '(':
			end := next + strings.IndexByte(s[next:], ')')
			value, ok := lookup(s[next+1 : end])
			if part, next = s[at:end+1], end+1; ok {
				part = value
			}
		}
		if !add(part) {
			return
		}
		at = next
	}
}
