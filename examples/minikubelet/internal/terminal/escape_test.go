package terminal

import (
	"strings"
	"testing"
	"time"

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
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"}}
	pod.Status = v1.PodStatus{Phase: v1.PodFailed, Reason: attack, Message: attack}
	all := PodTable([]*v1.Pod{pod}, time.Now()) + strings.Join(changes(nil, outlinesOf([]*v1.Pod{pod})), "\n")
	assert.Contains(t, all, `\x1b]52`)
	assert.NotContains(t, all, "\x1b")
	assert.NotContains(t, all, "\nweb: Running")
}
