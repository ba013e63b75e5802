package ui

import (
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/kubelet/internal/client"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/ui/xterm"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// execProtocol is the subprotocol of sessions, between the browser and the agent.
const execProtocol = "v5.channel.k8s.io"

// allowExec has the page execute commands in containers. Each is a line of the audit log before it begins.
func (h *handler) allowExec(audit io.Writer) {
	h.execs = true
	for name, kind := range map[string]string{"xterm.mjs": javaScript, "addon-fit.mjs": javaScript,
		"xterm.css": styleSheet} {
		h.file("/xterm/"+name, kind, xterm.Files, name)
	}
	h.data("GET", "/api/pods/{uid}/exec/{container}", func(w http.ResponseWriter, req *http.Request) error {
		pod, err := h.findHere(req)
		if err != nil {
			return err
		}
		container, command := req.PathValue("container"), req.URL.Query()["command"]
		if !strings.EqualFold(req.Header.Get("Upgrade"), "websocket") || len(command) == 0 || command[0] == "" ||
			!runs(pod, container) {
			http.Error(w, "want a WebSocket, a command, and a container that runs", http.StatusBadRequest)
			return nil
		}
		h.note(audit, "exec of %q in container %q of pod %s/%s by the page, user %s from %s", command, container,
			pod.Namespace, pod.Name, peerOf(req), req.RemoteAddr)
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
			ModifyResponse: func(resp *http.Response) error { // a browser does not show it
				if resp.StatusCode != http.StatusSwitchingProtocols {
					text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
					h.note(audit, "the exec has not begun: %q", text)
					resp.Body = http.NoBody
				}
				return nil
			},
			ErrorHandler: func(_ http.ResponseWriter, _ *http.Request, failure error) { err = failure },
		}
		session.ServeHTTP(w, req)
		return err
	})
}

// runs reports whether a container of the pod runs.
func runs(pod *v1.Pod, container string) bool {
	for s := range podspec.Statuses(&pod.Status) {
		if s.Name == container {
			return s.State.Running != nil
		}
	}
	return false
}
