package runtime

import (
	"errors"
	"fmt"
	"runtime/debug"
)

// Errors that callers may test for with [errors.Is].
var (
	// ErrNotFound says that the runtime knows no such pod, sandbox or container.
	ErrNotFound = errors.New("not found in the runtime")
	// ErrUnavailable says that the runtime cannot be reached at the moment.
	ErrUnavailable = errors.New("container runtime unavailable")
	// ErrNetworkNotReady says that the runtime is fit to run pods, but only those
	// that use the network of the host.
	ErrNetworkNotReady = errors.New("pod network not ready")
	// ErrAlreadyRunning is returned by the second call of the Run method of any part
	// of an agent, also after the first has returned: a part runs once. Sources of pods
	// may run again: they return it only while another call runs.
	ErrAlreadyRunning = errors.New("Run was already called")
)

// TerminalError says that a pod must not run on this node and that no later attempt
// can change that. A pod whose SyncPod returns an error that wraps one is
// terminated, and its phase becomes Failed with this reason and message.
type TerminalError struct {
	// Reason is one word in CamelCase for the status of the pod, as in "Evicted".
	Reason string
	// Message is for people.
	Message string
}

// Error implements error.
func (e *TerminalError) Error() string { return e.Reason + ": " + e.Message }

// PanicError is a panic that was recovered.
type PanicError struct {
	// Value is the argument of panic.
	Value any
	// Stack is the stack of the goroutine that panicked.
	Stack []byte
}

// Error implements error. It does not contain the stack.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Unwrap returns Value if it is an error, else nil.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// Recover calls f and returns its error, or a [*PanicError] if f panics.
func Recover(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	return f()
}
