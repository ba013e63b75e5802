package runtime

import (
	"errors"
	"fmt"
	"runtime/debug"
)

// Errors that callers test for with [errors.Is].
var (
	// ErrNotFound means that the runtime has no such pod, sandbox or container.
	ErrNotFound = errors.New("not found in the runtime")
	// ErrUnavailable means that the runtime did not answer. A later call may succeed.
	ErrUnavailable = errors.New("container runtime unavailable")
	// ErrNetworkNotReady means that the runtime is ready, but only for pods that use
	// the network of the host.
	ErrNetworkNotReady = errors.New("container runtime network not ready") // kubelet's text in the condition Ready
	// ErrImageInUse means that an image was not removed, because a pod uses it or is about
	// to.
	ErrImageInUse = errors.New("image in use")
	// ErrAlreadyRunning is returned by the Run method of a component when it is called
	// for the second time, also after the first call has returned: a component runs once.
	// A source of pods may run again; it returns this error only while another call runs.
	ErrAlreadyRunning = errors.New("already running")
)

// TerminalError means that a pod cannot run on this node, now or later. If the error
// of a SyncPod wraps one, the pod is terminated and its phase becomes Failed with this
// reason and message.
type TerminalError struct {
	// Reason is one word in CamelCase for the pod's status, such as "Evicted".
	Reason string
	// Message is a sentence for people.
	Message string
}

// Error implements error.
func (e *TerminalError) Error() string { return e.Reason + ": " + e.Message }

// PanicError is the error of a call that panicked.
type PanicError struct {
	// Value is the argument of panic.
	Value any
	// Stack is the stack of the goroutine that panicked, as [debug.Stack] formats it.
	Stack []byte
}

// Error returns the value of the panic, without the stack.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Unwrap returns Value if it is an error, and otherwise nil.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// Recover calls f and returns its error. If f panics, the error is a [*PanicError].
func Recover(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	return f()
}
