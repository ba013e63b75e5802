//go:build linux || darwin

package terminal

import (
	"os"

	"golang.org/x/sys/unix"
)

// size returns the size of the terminal f in characters, or false if f is no terminal.
func size(f *os.File) (width, height int, ok bool) {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, 0, false
	}
	return int(size.Col), int(size.Row), true
}
