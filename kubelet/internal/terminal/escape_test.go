package terminal

import (
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestEscape(t *testing.T) {
	for text, want := range map[string]string{
		"plain, with ümlauts → and \"quotes\" \\": "plain, with ümlauts → and \"quotes\" \\",
		"\x1b]52;c;ZXZpbA==\a":                    `\x1b]52;c;ZXZpbA==\a`,
		"\x1b[2J":                                 `\x1b[2J`,
		"a\nREADY   web\r\tx":                     `a\nREADY   web\r\tx`,
		"\u009b2J\x9b2J\u202e\u007f":              `\u009b2J\x9b2J\u202e\x7f`,
		"\ufffd":                                  "\ufffd",
	} {
		assert.Equal(t, want, Escape(text))
		assert.Equal(t, want, Escape(Escape(text)))
	}
	assert.Equal(t, "a\n"+`b\x1b`, EscapeLines("a\nb\x1b"))
}

// A container decides the message of its termination, and a runtime the reason.
func TestMessagesDoNotActOnTheTerminal(t *testing.T) {
	const attack = "\x1b]52;c;eA==\a\x1b[2J\nweb: Running"
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web" + attack, Namespace: "default" + attack}}
	pod.Status = v1.PodStatus{Phase: v1.PodFailed, Reason: attack, Message: attack, PodIP: "fe80::1%" + attack}
	all := PodTable([]*v1.Pod{pod}, time.Now()) + strings.Join(changes(nil, outlinesOf([]*v1.Pod{pod})), "\n") +
		strings.Join(changes(outlinesOf([]*v1.Pod{pod}), nil), "\n")
	assert.Contains(t, all, `\x1b]52`)
	assert.NotContains(t, all, "\x1b")
	assert.NotContains(t, all, "\nweb: Running")
}

// What is escaped has one line and acts on no terminal, and text that can be printed stays as it is.
func FuzzEscape(f *testing.F) {
	for _, text := range []string{"plain", "\x1b]52;c;ZXZpbA==\a", "\u009b2J\x9b2J\u202e\u007f\ufffd\xff",
		"a\r\n\tb", `\x1b`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got := Escape(text)
		for _, r := range got {
			if !unicode.IsPrint(r) && r != utf8.RuneError {
				t.Fatalf("%q in %q", r, got)
			}
		}
		if !utf8.ValidString(got) {
			t.Fatalf("%q is not valid", got)
		}
		if printable(text) == text && utf8.ValidString(text) && got != text {
			t.Fatalf("%q became %q", text, got)
		}
		if again := Escape(got); again != got {
			t.Fatalf("%q became %q", got, again)
		}
		if strings.Count(EscapeLines(text), "\n") != strings.Count(text, "\n") {
			t.Fatal("another number of lines")
		}
	})
}
