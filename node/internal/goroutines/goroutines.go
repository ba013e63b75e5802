// Package goroutines finds goroutines, for tests of "without a user: no cost, no goroutine".
package goroutines

import (
	"regexp"
	"runtime"
	"strings"
)

// In returns the stacks of the goroutines that run code in the directory, such as "node/dra" or "fsnotify/fsnotify@",
// or were started by it. Test files and directories below do not count. A test that calls it must not run in parallel
// with others of its package.
func In(dir string) (stacks []string) {
	frame := regexp.MustCompile(`/` + regexp.QuoteMeta(dir) + `[^/\n]*/[^/\n]+\.go:\d+`)
	for _, stack := range strings.Split(string(all()), "\n\n") {
		for _, file := range frame.FindAllString(stack, -1) {
			if !strings.Contains(file, "_test.go:") {
				stacks = append(stacks, stack)
				break
			}
		}
	}
	return stacks
}

// all returns the stacks of all goroutines.
func all() []byte {
	for size := 1 << 20; ; size *= 2 {
		buf := make([]byte, size)
		if n := runtime.Stack(buf, true); n < size {
			return buf[:n]
		}
	}
}
