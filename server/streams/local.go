package streams

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/server/internal/subprotocol"
)

// serveLocal connects a client with a runtime that serves streams in this process. opts are
// the streams that the client requests, tty is that of the process, run is one of the methods
// of [runtime.Streamer], and failed begins its errors.
func (h *Handlers) serveLocal(s *session, w http.ResponseWriter, req *http.Request, opts runtime.StreamOptions, tty bool, failed string, run func(context.Context, runtime.Streams) (int32, error)) {
	var c *client
	var err error
	if wsstream.IsWebSocketRequest(req) {
		c, err = s.acceptWebSocket(w, req, opts, subprotocol.V4, subprotocol.V5)
	} else {
		c, err = s.acceptSPDY(w, req, opts, h.opts.SetupTimeout)
	}
	if err != nil {
		h.log.V(1).Info("A client of a stream was not accepted", "reason", err.Error())
		return
	}
	defer c.close()
	var code int32
	err = runtime.Recover(func() (err error) {
		code, err = run(s.ctx, c.streams(s, tty))
		return err
	})
	if err != nil {
		err = fmt.Errorf("%s: %w", failed, err)
	}
	if s.ctx.Err() == nil {
		writeStatus(c.status, code, err)
	}
	s.over.Store(true)
}

// The fields of a Status that clients read the exit code from.
const (
	nonZeroExitCode = metav1.StatusReason("NonZeroExitCode")
	exitCodeCause   = metav1.CauseType("ExitCode")
)

// statusOf returns what a client receives at the end, in kubelet's words.
func statusOf(code int32, err error) metav1.Status {
	switch {
	case err != nil:
		return metav1.Status{
			Status: metav1.StatusFailure, Reason: metav1.StatusReasonInternalError, Code: http.StatusInternalServerError,
			Message: "Internal error occurred: " + err.Error(), Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Message: err.Error()}}},
		}
	case code != 0:
		text := strconv.Itoa(int(code))
		return metav1.Status{
			Status: metav1.StatusFailure, Reason: nonZeroExitCode,
			Message: "command terminated with non-zero exit code: exit code " + text,
			Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: exitCodeCause, Message: text}}},
		}
	default:
		return metav1.Status{Status: metav1.StatusSuccess}
	}
}

// writeStatus sends the status at the end of a session. A client that is gone misses it.
func writeStatus(to io.Writer, code int32, err error) {
	data, merr := json.Marshal(statusOf(code, err))
	if merr != nil { // cannot happen
		data = fmt.Appendf(nil, "%v", merr)
	}
	_, _ = to.Write(data)
}
