package client

import (
	"strings"

	"github.com/kubeletkit/kubeletkit/kubelet/internal/terminal"
)

// shortest is the number of bytes of an error from which on a repeat is left out.
const shortest = 24

// said remembers errors, so that a page has each of them once. The zero value has none.
type said struct{ texts []string }

// add remembers a text that the page has.
func (s *said) add(text string) {
	if text = terminal.OneLine(text); len(text) >= shortest {
		s.texts = append(s.texts, text)
	}
}

// again is in the place of an error that the page has already.
const again = "as above"

// rest remembers the text, and returns it without the error at its end if the page has that already.
// Causes are at the end of errors, after a colon.
func (s *said) rest(text string) string {
	text = terminal.OneLine(text)
	defer s.add(text)
	for at := 0; at >= 0 && len(text)-at >= shortest; {
		for _, t := range s.texts {
			if !strings.Contains(t, text[at:]) {
				continue
			}
			return text[:at] + again
		}
		next := strings.Index(text[at:], ": ")
		if next < 0 {
			break
		}
		at += next + len(": ")
	}
	return text
}
