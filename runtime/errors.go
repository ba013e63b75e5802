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
	// Detail is the cause of an infeasible resize in one word for metrics. It may be empty.
	Detail string
}

// Error implements error.
func (e *TerminalError) Error() string { return e.Reason + ": " + e.Message }

// WaitError means that a pod, or one of its containers, cannot start yet, and that this is no failure: something is to
// happen first, and its cause is for users to see. The containers that do not run wait with this reason and message,
// and one event has them when the wait begins and when one of them changes. The pod is synced again when it is
// requested, and at each resync; there is no back-off. An error that joins a WaitError and a failure is a failure.
type WaitError struct {
	// Reason is one word in CamelCase, such as "WaitingForDevice".
	Reason string
	// Message is a sentence for people. It is the same as long as the cause is the same.
	Message string
}

// Error implements error.
func (e *WaitError) Error() string { return e.Reason + ": " + e.Message }

// WithoutWaits returns one of the waits among joined errors, nil if there is none, and the error without them. An error
// that wraps nothing but waits is one.
func WithoutWaits(err error) (wait *WaitError, failure error) {
	switch e := err.(type) {
	case nil:
		return nil, nil
	case *WaitError:
		return e, nil
	case *PanicError:
		return nil, err
	case interface{ Unwrap() []error }:
		var failures []error
		for _, part := range e.Unwrap() {
			waiting, failed := WithoutWaits(part)
			if failed != nil {
				failures = append(failures, failed)
			}
			if waiting != nil {
				wait = waiting
			}
		}
		if wait == nil {
			return nil, err
		}
		return wait, errors.Join(failures...)
	case interface{ Unwrap() error }:
		if wait, failure = WithoutWaits(e.Unwrap()); failure != nil {
			return wait, err
		}
		if wait != nil {
			return wait, nil
		}
	}
	return nil, err
}

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
