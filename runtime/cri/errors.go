package cri

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kubeletkit/kubeletkit/internal/text"
	"github.com/kubeletkit/kubeletkit/internal/underway"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// callError is the error of a CRI call. It unwraps to the class that callers test for,
// and to the gRPC error.
type callError struct {
	// call is the CRI method; about names the pod and the container, and is "" if the
	// call is about neither.
	call, about string
	// message is the runtime's message without gRPC's prefix.
	message string
	class   error
	err     error
}

func (e *callError) Error() string {
	s := e.call + ": " + e.message
	if e.about != "" {
		s = e.about + ": " + s
	}
	if e.class == runtime.ErrUnavailable {
		s += ": " + e.class.Error()
	}
	return s
}

func (e *callError) Unwrap() []error {
	if e.class == nil {
		return []error{e.err}
	}
	return []error{e.class, e.err} // the class first: callers test for it
}

// notInitialized is what containerd 1.6 and 1.7 answer, without a code, while they start.
const notInitialized = "server is not initialized yet"

// wrapCall returns the error of a call with its class: [runtime.ErrNotFound],
// [runtime.ErrUnavailable], [errors.ErrUnsupported] for a call that the runtime does
// not implement, or the error of a context that has ended. ctxErr is the error of the
// call's context. It takes precedence over the status: when a runtime cuts the stream
// at its deadline, the status is Canceled.
func wrapCall(call, about string, err, ctxErr error) error {
	st := status.Convert(err)
	e := &callError{call: call, about: about, message: short(st.Message()), err: err}
	switch code := st.Code(); {
	case ctxErr != nil:
		e.class = ctxErr
		e.message = ctxErr.Error()
	case code == codes.NotFound:
		e.class = runtime.ErrNotFound
	case code == codes.Unavailable, code == codes.Unknown && strings.Contains(st.Message(), notInitialized):
		e.class = runtime.ErrUnavailable
		if why, ok := strings.CutPrefix(e.message, `connection error: desc = "transport: Error while dialing: `); ok {
			e.message = strings.TrimSuffix(why, `"`) // as in "dial unix /run/cri.sock: connect: connection refused"
		}
	case code == codes.Unimplemented:
		e.class = errors.ErrUnsupported
	case code == codes.ResourceExhausted:
		e.message += adviceOnSize(call, e.message)
	case code == codes.Canceled:
		e.class = context.Canceled
	case code == codes.DeadlineExceeded:
		e.class = context.DeadlineExceeded
	}
	return e
}

// maxMessage is the maximum size of a message of the runtime in bytes, many times what a
// runtime says. Messages are kept in the status of a pod, and logged.
const maxMessage = 16 << 10

// short returns a message of the runtime, with an ellipsis if it is too long.
func short(message string) string {
	return text.Clip(message, maxMessage)
}

var errNoID = errors.New("the runtime returned no ID")

// checkID returns the error of a call that has created something, also if its reply lacks
// the ID. An agent that went on would create more.
func checkID(call, about, id string, err error) error {
	if err != nil || id != "" {
		return err
	}
	return &callError{call: call, about: about, message: errNoID.Error(), err: errNoID}
}

// adviceOnSize returns advice for the error of a message above a limit. gRPC's text has
// the size and the limit. Only the text of the error depends on this comparison.
func adviceOnSize(call, message string) string {
	switch {
	case !strings.Contains(message, "larger than max"):
		return ""
	case strings.Contains(message, "trying to send"):
		return ": bytes of the reply, and the runtime's own limit; raise that (max_send_message_size in containerd, " +
			"grpc_max_send_msg_size in CRI-O)"
	case call == "ExecSync":
		return ": bytes of the output of the command, and the limit"
	default:
		return ": bytes of the reply, and the limit; raise cri.Options.MaxMessageSize"
	}
}

// reason returns the runtime's message for a status or an event, without the names of
// pod, container and call.
func reason(err error) string {
	if e, ok := err.(*callError); ok {
		return e.message
	}
	return err.Error()
}

// sandboxID matches the ID of a sandbox or a container, and the digest of an image.
var sandboxID = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(sha256:)?\b[0-9a-f]{64}\b`) })

// waits returns the error of a step that waits, which is no failure, or nil.
func waits(err error) *runtime.WaitError {
	if wait, failure := runtime.WithoutWaits(err); failure == nil {
		return wait
	}
	return nil
}

// withoutIDs returns the message without IDs of sandboxes. Each failed attempt to create a sandbox has
// a new ID, which containerd and CRI-O put into the message: the status of the pod would change, and
// be written, with each attempt.
func withoutIDs(message string) string {
	return sandboxID().ReplaceAllStringFunc(message, func(s string) string {
		if strings.HasPrefix(s, "sha256:") {
			return s
		}
		return "<id>"
	})
}

// call makes one call under the call timeout plus extra, and wraps its error. A negative
// extra means that only ctx bounds the call.
func call[Q, R any](
	ctx context.Context, r *Runtime, name, about string, extra time.Duration,
	method func(context.Context, Q, ...grpc.CallOption) (R, error), req Q,
) (R, error) {
	if extra >= 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.opts.CallTimeout+extra)
		defer cancel()
	}
	_, container, _ := strings.Cut(about, ", container ")
	under := underway.Begin(ctx, container, "CRI call", name)
	defer under.End()
	began := time.Now()
	resp, err := method(under, req)
	if err != nil {
		var none R
		resp, err = none, wrapCall(name, about, err, errOf(ctx))
	}
	r.called(name, began, err)
	return resp, err
}

// called measures a call.
func (r *Runtime) called(method string, began time.Time, err error) {
	r.opts.Measure.Emit(Call{Method: method, Took: time.Since(began), Err: err})
}
