package terminal

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"
)

// screen is a terminal with a table at its end, which is drawn again in its place
// when it has changed, and with logs above. It is safe for concurrent use.
type screen struct {
	out io.Writer
	// size of the terminal in characters.
	size func() (width, height int)

	mu    sync.Mutex
	table string
	// notes are the lines below the table.
	notes []string
	// shown is the table as it is on the terminal, cut to its size.
	shown []string
	// failed is the error of the first write that failed. Nothing is written after it.
	failed error
}

// show replaces the table and the lines below it.
func (s *screen) show(table string, notes []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if table == s.table && slices.Equal(notes, s.notes) {
		return
	}
	s.table, s.notes = table, notes
	_ = s.draw(nil)
}

// Write writes whole lines above the table.
func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.draw(p); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (s *screen) draw(above []byte) error {
	if s.failed != nil {
		return s.failed
	}
	width, height := s.size()
	var b strings.Builder
	if n := rowsOnScreen(s.shown, width); n > 0 {
		// Up to the first line of the table, and erase all from there on.
		fmt.Fprintf(&b, "\x1b[%dA\r\x1b[J", n)
	}
	b.Write(above)
	if len(above) > 0 && above[len(above)-1] != '\n' {
		b.WriteByte('\n')
	}
	s.shown = fit(s.table, s.notes, width, height)
	for _, line := range s.shown {
		b.WriteString(line)
		b.WriteByte('\n')
	}
	_, s.failed = io.WriteString(s.out, b.String())
	return s.failed
}

// rowsOnScreen returns the number of rows of lines that were written before the
// terminal had this width. A terminal breaks lines when it gets narrower.
func rowsOnScreen(lines []string, width int) int {
	n := 0
	for _, line := range lines {
		n += max(1, (utf8.RuneCountInString(line)+width-1)/max(1, width))
	}
	return n
}

// fit cuts a table and the lines below it so that they fit on the terminal with one row to spare.
func fit(table string, notes []string, width, height int) []string {
	if table == "" {
		return nil
	}
	lines := strings.Split(strings.TrimSuffix(table, "\n"), "\n")
	notes = notes[:max(0, min(len(notes), height/2, height-3))]
	if room := max(2, height-1-len(notes)); len(lines) > room {
		left := len(lines) - room + 1
		lines = append(lines[:room-1:room-1], fmt.Sprintf("… and %d more; see the command pods", left))
	}
	lines = append(lines, notes...)
	for i, line := range lines {
		if runes := []rune(line); len(runes) > width {
			lines[i] = string(runes[:max(0, width)])
		}
	}
	return lines
}
