package server

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/server/internal/lookup"
)

// Histories are the histories of pods. With package history, E is history.Entry, and the
// functions are methods of a history.Store; see [History].
type Histories[E fmt.Stringer] struct {
	// Entries returns the history of a pod, the oldest entry first. An entry is a line of
	// text, and a value in JSON. It is empty if the pod is not known.
	Entries func(pod types.UID) []E
	// Gone returns the UID of the last pod of the name that has a history and is not on the
	// node any more. If nil, only pods of the node are found.
	Gone func(namespace, name string) (types.UID, bool)
}

// History returns a handler of GET /debug/history, which kubelet does not have. Its pattern has
// {namespace} and {pod}, and it may have {uid}. The answer is text with one line for each entry;
// with the parameter output=json, a list in JSON.
func History[E fmt.Stringer](agent Agent, histories Histories[E]) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		namespace, name, uid := req.PathValue("namespace"), req.PathValue("pod"), types.UID(req.PathValue("uid"))
		if pod := lookup.Pod(agent, namespace, name, uid); pod != nil {
			uid = pod.UID
		} else if gone, ok := histories.gone(namespace, name); ok && (uid == "" || uid == gone) {
			uid = gone
		} else {
			writeError(w, http.StatusNotFound, fmt.Sprintf("pod %q does not exist", name))
			return
		}
		entries := histories.Entries(uid)
		// Not by the header Accept: kubectl get --raw accepts JSON before all else.
		if req.URL.Query().Get("output") == "json" {
			if entries == nil {
				entries = []E{}
			}
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(entries)
			return
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		for _, e := range entries {
			if _, err := io.WriteString(w, e.String()+"\n"); err != nil {
				return
			}
		}
	})
}

func (h Histories[E]) gone(namespace, name string) (types.UID, bool) {
	if h.Gone == nil {
		return "", false
	}
	return h.Gone(namespace, name)
}
