package supervise

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
)

// initialized is set by Init and never cleared. It is the only state of the package. Without
// it, a server would have to execute the program to find out that it does not call Init, and
// the program would do its usual work.
var initialized atomic.Bool

// Initialized reports whether [Init] was called in this process.
func Initialized() bool { return initialized.Load() }

// Init runs the supervisor and does not return if this process was started as one,
// under the name [Arg0]. Otherwise it returns at once.
func Init() {
	initialized.Store(true)
	if len(os.Args) < 2 || os.Args[0] != Arg0 {
		return
	}
	if err := supervise(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// greeting is the first byte that a supervisor writes to the server. It is white space, so
// that the whole output is JSON.
const greeting = "\n"

// supervise is the main function of a supervisor.
func supervise() error {
	say := os.NewFile(readyFD, "ready")
	if _, err := say.WriteString(greeting); err != nil {
		return errors.New("only a server of runtime/process starts a program under the name " + Arg0)
	}
	return run(say)
}
