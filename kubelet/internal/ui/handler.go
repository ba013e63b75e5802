package ui

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"embed"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kubeletkit/kubeletkit/history"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/control"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/recent"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/terminal"
	"github.com/kubeletkit/kubeletkit/runtime"
)

//go:embed web
var web embed.FS

// files are the files of the page, with their types.
var files = map[string]string{
	"index.html": "text/html; charset=utf-8", "style.css": styleSheet,
	"app.js": javaScript, "list.js": javaScript, "logs.js": javaScript, "usage.js": javaScript,
	"net.js": javaScript, "draw.js": javaScript, "node.js": javaScript, "session.js": javaScript,
}

const (
	javaScript = "text/javascript; charset=utf-8"
	styleSheet = "text/css; charset=utf-8"
)

// policy is the Content-Security-Policy: the files of the page, and requests to where they came from.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; " +
	"form-action 'none'; frame-ancestors 'none'"

// tailLines is how many lines of a log the page begins with.
const tailLines = "500"

// mostWaiting is the number of pods in a list whose events are read for why they wait.
const mostWaiting = 50

// errNoPod means that the agent has no pod of the UID.
var errNoPod = errors.New("the agent has no such pod")

// handler serves the page and its data.
type handler struct {
	agent *agent
	token [sha256.Size]byte
	mux   *http.ServeMux
	now   func() time.Time
	// restarts and execs mean that containers may be restarted, and commands be executed in them.
	restarts, execs bool
}

func newHandler(a *agent, token string) *handler {
	h := &handler{agent: a, token: sha256.Sum256([]byte(token)), mux: http.NewServeMux(), now: time.Now}
	for name, kind := range files {
		path := "/" + strings.TrimSuffix(name, "index.html")
		if path == "/" {
			path = "/{$}"
		}
		h.file(path, kind, web, "web/"+name)
	}
	h.mux.HandleFunc("GET /favicon.ico",
		func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	h.data("GET", "/api/pods", h.pods)
	h.data("GET", "/api/usage", h.usage)
	h.data("GET", "/api/node", h.node)
	h.data("GET", "/api/images", h.images)
	h.data("GET", "/api/pods/{uid}", h.pod)
	h.data("GET", "/api/pods/{uid}/yaml", h.yaml)
	h.data("GET", "/api/pods/{uid}/history", h.history)
	h.data("GET", "/api/pods/{uid}/logs/{container}", h.logs)
	return h
}

// file serves a file.
func (h *handler) file(path, kind string, from fs.ReadFileFS, name string) {
	h.mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
		data, err := from.ReadFile(name)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", kind)
		_, _ = w.Write(data) // a browser that went away
	})
}

// ServeHTTP implements [http.Handler].
func (h *handler) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	for name, value := range map[string]string{
		"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY",
		"Referrer-Policy":            "no-referrer",
		"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
		"Cache-Control": "no-store",
	} {
		w.Header().Set(name, value)
	}
	switch {
	case !fromHere(req):
		http.Error(w, "this page is for browsers on this machine", http.StatusForbidden)
	case req.Method != http.MethodGet && req.Method != http.MethodHead &&
		!(h.restarts && req.Method == http.MethodPost):
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "this page changes nothing", http.StatusMethodNotAllowed)
	default:
		h.mux.ServeHTTP(w, req)
	}
}

// fromHere reports whether the request is from this machine, and for it by name: the page of
// another server whose name resolves to 127.0.0.1 sends its own name. Ports may differ, since ssh forwards them.
func fromHere(req *http.Request) bool {
	peer, err := netip.ParseAddrPort(req.RemoteAddr)
	if err != nil || !peer.Addr().Unmap().IsLoopback() {
		return false
	}
	host := req.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return host == "127.0.0.1" || host == "localhost" || host == "::1" || host == "[::1]"
}

// data registers a request for data, which needs the token.
func (h *handler) data(method, path string, answer func(http.ResponseWriter, *http.Request) error) {
	h.mux.HandleFunc(method+" "+path, func(w http.ResponseWriter, req *http.Request) {
		sum := sha256.Sum256([]byte(tokenOf(req)))
		if subtle.ConstantTimeCompare(sum[:], h.token[:]) != 1 {
			http.Error(w, "the token is missing or wrong", http.StatusUnauthorized)
			return
		}
		err := answer(w, req)
		switch {
		case err == nil || req.Context().Err() != nil:
		case errors.Is(err, errNoPod):
			http.Error(w, err.Error(), http.StatusNotFound)
		case errors.Is(err, control.ErrNoAgent):
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		default:
			http.Error(w, err.Error(), http.StatusBadGateway)
		}
	})
}

// tokenProtocol is a subprotocol with the token in base64url, as an API server takes one: a browser gives a WebSocket
// no header.
const tokenProtocol = "base64url.bearer.authorization.k8s.io."

// tokenOf returns the token of a request, "" if it has none.
func tokenOf(req *http.Request) string {
	if token, ok := strings.CutPrefix(req.Header.Get("Authorization"), "Bearer "); ok {
		return token
	}
	for protocol := range strings.SplitSeq(req.Header.Get("Sec-WebSocket-Protocol"), ",") {
		if text, ok := strings.CutPrefix(strings.TrimSpace(protocol), tokenProtocol); ok {
			token, _ := base64.RawURLEncoding.DecodeString(text)
			return string(token)
		}
	}
	return ""
}

// answerJSON writes a value, unless the browser has it already.
func answerJSON(w http.ResponseWriter, req *http.Request, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(data)
	tag := `"` + hex.EncodeToString(sum[:]) + `"`
	w.Header().Set("ETag", tag)
	if req.Header.Get("If-None-Match") == tag {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(data) // a browser that went away
	return nil
}

// pods answers with all pods.
func (h *handler) pods(w http.ResponseWriter, req *http.Request) error {
	list, err := read[v1.PodList](req.Context(), h.agent, "/pods", nil)
	if err != nil {
		return err
	}
	gone, err := read[[]recent.Gone](req.Context(), h.agent, control.GonePath, nil)
	if err != nil {
		return err
	}
	broken, err := read[[]control.Problem](req.Context(), h.agent, control.ProblemsPath, nil)
	if err != nil {
		broken = nil // the agent may be older
	}
	return answerJSON(w, req, listOf(list.Items, gone, broken, h.waiting(req.Context(), list.Items), h.now()))
}

// waiting returns the events of the pods that wait, such as the last failure of a readiness probe.
func (h *handler) waiting(ctx context.Context, pods []v1.Pod) map[types.UID][]runtime.Event {
	query, events := url.Values{}, map[types.UID][]runtime.Event{}
	for i := range pods {
		if toneOf(&pods[i], terminal.Summarize(&pods[i])) == waits && len(query["uid"]) < mostWaiting {
			query.Add("uid", string(pods[i].UID))
		}
	}
	if len(query) == 0 {
		return events
	}
	all, err := read[[]runtime.Event](ctx, h.agent, control.EventsPath, query)
	if err != nil {
		return events // the list is of use without them
	}
	for _, e := range all {
		events[e.Pod.UID] = append(events[e.Pod.UID], e)
	}
	return events
}

// usage answers with what the pods use.
func (h *handler) usage(w http.ResponseWriter, req *http.Request) error {
	s, err := read[statsv1alpha1.Summary](req.Context(), h.agent, "/stats/summary", nil)
	if err != nil {
		return err
	}
	return answerJSON(w, req, usageOf(&s, req.URL.Query().Get("pod")))
}

// find returns the pod of the request, and when it was gone.
func (h *handler) find(req *http.Request) (pod *v1.Pod, goneAt *time.Time, err error) {
	uid := types.UID(req.PathValue("uid"))
	list, err := read[v1.PodList](req.Context(), h.agent, "/pods", nil)
	if err != nil {
		return nil, nil, err
	}
	for i := range list.Items {
		if list.Items[i].UID == uid {
			return &list.Items[i], nil, nil
		}
	}
	gone, err := read[[]recent.Gone](req.Context(), h.agent, control.GonePath, nil)
	if err != nil {
		return nil, nil, err
	}
	for i := range gone {
		if gone[i].Pod.UID == uid {
			return gone[i].Pod, &gone[i].At, nil
		}
	}
	return nil, nil, errNoPod
}

// findHere returns the pod of the request, which is on the node.
func (h *handler) findHere(req *http.Request) (*v1.Pod, error) {
	pod, goneAt, err := h.find(req)
	if err == nil && goneAt != nil {
		err = errNoPod
	}
	return pod, err
}

// pod answers with one pod.
func (h *handler) pod(w http.ResponseWriter, req *http.Request) error {
	pod, goneAt, err := h.find(req)
	if err != nil {
		return err
	}
	events, err := read[[]runtime.Event](req.Context(), h.agent,
		control.EventsPath+url.PathEscape(string(pod.UID)), nil)
	if err != nil {
		return err
	}
	d := detailsOf(pod, goneAt, events, h.past(req.Context(), pod.UID), h.now())
	if goneAt == nil {
		h.offer(&d, pod)
	}
	return answerJSON(w, req, d)
}

// past returns the history of a pod as far as it can be read.
func (h *handler) past(ctx context.Context, uid types.UID) (entries []history.Entry) {
	body, err := h.agent.get(ctx, control.HistoryPath+url.PathEscape(string(uid)), nil)
	if err != nil {
		return nil
	}
	defer func() { _ = body.Close() }()
	for dec := json.NewDecoder(body); ; {
		var e history.Entry
		if dec.Decode(&e) != nil {
			return entries
		}
		entries = append(entries, e)
	}
}

// yaml answers with the manifest and the status of a pod.
func (h *handler) yaml(w http.ResponseWriter, req *http.Request) error {
	pod, _, err := h.find(req)
	if err != nil {
		return err
	}
	data, err := yamlOf(pod)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write(data) // a browser that went away
	return nil
}

// history answers with the entries of a pod, one JSON value a line, until the browser ends the request.
func (h *handler) history(w http.ResponseWriter, req *http.Request) error {
	path := control.HistoryPath + url.PathEscape(req.PathValue("uid"))
	body, err := h.agent.get(req.Context(), path, url.Values{"follow": {"true"}})
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }()
	w.Header().Set("Content-Type", "application/x-ndjson")
	flush := http.NewResponseController(w).Flush
	_ = flush() // a browser that is gone already is noticed with the next write
	dec, enc := json.NewDecoder(body), json.NewEncoder(w)
	for {
		var e history.Entry
		if dec.Decode(&e) != nil || enc.Encode(entryOf(e)) != nil || flush() != nil {
			return nil // the agent or the browser has ended it; the browser tries again
		}
	}
}

// logOptions returns the options of the log for the agent: the end of the log, and what comes later. That of the
// previous instance ends, and all=true is the whole log as it is.
func logOptions(given url.Values) url.Values {
	options := url.Values{}
	for _, name := range []string{"previous", "timestamps"} {
		if given.Get(name) == "true" {
			options.Set(name, "true")
		}
	}
	if given.Get("all") == "true" {
		return options
	}
	options.Set("tailLines", tailLines)
	if !options.Has("previous") {
		options.Set("follow", "true")
		options.Set("restarts", "true")
	}
	return options
}

// logs answers with the log of a container, as text, until it or the pod ends or the browser ends the request. Its
// parameters are previous, timestamps and all.
func (h *handler) logs(w http.ResponseWriter, req *http.Request) error {
	pod, _, err := h.find(req)
	if err != nil {
		return err
	}
	path := "/containerLogs"
	for _, element := range []string{pod.Namespace, pod.Name, string(pod.UID), req.PathValue("container")} {
		path += "/" + url.PathEscape(element)
	}
	body, err := h.agent.get(req.Context(), path, logOptions(req.URL.Query()))
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }()
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	flush := http.NewResponseController(w).Flush
	_ = flush()
	buf := make([]byte, 32<<10)
	for {
		n, err := body.Read(buf)
		if n > 0 {
			if _, err := w.Write(buf[:n]); err != nil || flush() != nil {
				return nil
			}
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				panic(http.ErrAbortHandler) // the browser sees that it is not the end of the log
			}
			return nil
		}
	}
}
