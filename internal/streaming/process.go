package streaming

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"github.com/kubeletkit/kubeletkit/internal/subprotocol"
)

// ServeProcess connects a client with a process. opts are the streams that the client requests, tty is
// that of the process, run is a method of a runtime.Streamer, which does not panic, and failed begins its errors.
func (s *Session) ServeProcess(w http.ResponseWriter, req *http.Request, opts Requested, tty bool, failed string,
	run func(context.Context, Streams) (int32, error)) {
	var c *client
	var err error
	if wsstream.IsWebSocketRequest(req) {
		c, err = s.acceptWebSocket(w, req, opts, v0, v1, v1Base64, v4Base64, subprotocol.V4, subprotocol.V5)
	} else {
		c, err = s.acceptSPDY(w, req, opts)
	}
	if err != nil {
		s.notAccepted(err)
		return
	}
	defer c.close()
	code, err := run(s.ctx, c.streams(s, tty))
	if err != nil {
		err = fmt.Errorf("%s: %w", failed, err)
	}
	if s.ctx.Err() == nil {
		c.writeStatus(code, err)
	}
	s.over.Store(true)
}

func (s *Session) notAccepted(err error) {
	s.server.Logger.V(1).Info("A client of a stream was not accepted", "reason", err.Error())
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
			Status: metav1.StatusFailure, Reason: metav1.StatusReasonInternalError,
			Code: http.StatusInternalServerError,
			Message: "Internal error occurred: " +
				err.Error(), Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Message: err.Error()}}},
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
func (c *client) writeStatus(code int32, err error) {
	status := statusOf(code, err)
	if c.text {
		_, _ = io.WriteString(c.status, status.Message)
		return
	}
	data, merr := json.Marshal(status)
	if merr != nil { // cannot happen
		data = fmt.Appendf(nil, "%v", merr)
	}
	_, _ = c.status.Write(data)
}
