package ui

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"

	"github.com/kubeletkit/kubeletkit/kubelet/internal/client"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/ui/xterm"
)

// execProtocol is the subprotocol of sessions, between the browser and the agent.
const execProtocol = "v5.channel.k8s.io"

// allowExec has the page execute commands in containers. Each is a line of the audit log before it begins.
func (h *handler) allowExec(audit io.Writer) {
	h.execs = true
	for name, kind := range map[string]string{"xterm.mjs": javaScript, "addon-fit.mjs": javaScript,
		"xterm.css": "text/css; charset=utf-8"} {
		h.file("/xterm/"+name, kind, xterm.Files, name)
	}
	h.data("GET", "/api/pods/{uid}/exec/{container}", func(w http.ResponseWriter, req *http.Request) error {
		pod, goneAt, err := h.find(req)
		if err == nil && goneAt != nil {
			err = errNoPod
		}
		if err != nil {
			return err
		}
		container, command := req.PathValue("container"), req.URL.Query()["command"]
		_, _ = fmt.Fprintf(audit, "%s exec of %q in container %q of pod %s/%s by the page, user %s from %s\n",
			h.now().Format(time.RFC3339), command, container, pod.Namespace, pod.Name, peerOf(req.RemoteAddr),
			req.RemoteAddr)
		query := url.Values{"command": command, "input": {"1"}, "output": {"1"}, "tty": {"1"}}
		target := &url.URL{Scheme: "http", Host: "agent", Path: client.PathOf("exec", pod, container),
			RawQuery: query.Encode()}
		session := &httputil.ReverseProxy{
			Transport: h.agent.Transport,
			Rewrite: func(r *httputil.ProxyRequest) {
				r.Out.URL, r.Out.Host = target, ""
				r.Out.Header.Del("Authorization")
				r.Out.Header.Set("Sec-WebSocket-Protocol", execProtocol)
			},
			ErrorHandler: func(_ http.ResponseWriter, _ *http.Request, failure error) { err = failure },
		}
		session.ServeHTTP(w, req)
		return err
	})
}
