package cluster

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/internal/apitest"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

const passedHeader = "X-Passed" // of a request that a broken server passes to the server behind it

// text is an answer of the server with a body.
func text(body string) *http.Response {
	resp := apitest.Response(nil, nil)
	resp.ContentLength, resp.Body = -1, io.NopCloser(bytes.NewReader([]byte(body)))
	return resp
}

// rewritten returns the body of the answer to a request that is no watch after a change.
func rewritten(r *rig, req *apitest.Request, change func([]byte) *http.Response) (*http.Response, error) {
	passed := req.HTTP.Clone(req.HTTP.Context())
	passed.Header.Set(passedHeader, "true")
	passed.Body = io.NopCloser(bytes.NewReader(req.Body))
	resp, err := r.api.RoundTrip(passed)
	if err != nil || resp.StatusCode != http.StatusOK {
		return resp, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	return change(body), nil
}

// A server that is broken for ten minutes ends no pod and receives a bounded number of requests.
// After that the node follows it again.
func TestBrokenServer(t *testing.T) {
	expired := apierrors.NewResourceExpired("too old").Status()
	expired.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	event := func(kind string, object any) string {
		line, _ := json.Marshal(map[string]any{"type": kind, "object": object})
		return string(line) + "\n"
	}
	other := `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"other","namespace":"default"}}`
	foreign := bound("foreign")
	foreign.TypeMeta = metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}
	foreign.UID, foreign.ResourceVersion, foreign.Spec.NodeName = "foreign", "101", "another"
	onlyWatches := func(answer func() *http.Response) func(*rig, *apitest.Request) (*http.Response, error) {
		return func(_ *rig, req *apitest.Request) (*http.Response, error) {
			if req.Verb == "watch" {
				return answer(), nil
			}
			return nil, nil
		}
	}
	for name, broken := range map[string]func(*rig, *apitest.Request) (*http.Response, error){
		"watches that end at once":     onlyWatches(func() *http.Response { return text("") }),
		"watches that end in an event": onlyWatches(func() *http.Response { return text(event("MODIFIED", foreign)[:50]) }),
		"watches with a pod of another node": func(_ *rig, req *apitest.Request) (*http.Response, error) {
			if req.Verb != "watch" {
				return nil, nil
			}
			if req.Resource != "pods" {
				return text(""), nil
			}
			return text(event("ADDED", foreign)), nil
		},
		"watches with an object of other kind": onlyWatches(func() *http.Response { return text(event("MODIFIED", json.RawMessage(other))) }),
		"watches with an unknown event":        onlyWatches(func() *http.Response { return text(event("EXPLODED", foreign)) }),
		"watches that are refused as expired":  onlyWatches(func() *http.Response { return apitest.Response(nil, apierrors.NewResourceExpired("too old")) }),
		"watches that expire at once":          onlyWatches(func() *http.Response { return text(event("ERROR", expired)) }),
		"try again in three days": func(*rig, *apitest.Request) (*http.Response, error) {
			resp := apitest.Response(nil, apierrors.NewTooManyRequests("later", 3*24*3600))
			resp.Header.Set("Retry-After", "259200")
			return resp, nil
		},
		"lists without a version": func(r *rig, req *apitest.Request) (*http.Response, error) {
			switch req.Verb {
			case "watch":
				return text(""), nil
			case "list":
				return rewritten(r, req, func(body []byte) *http.Response {
					list := map[string]any{}
					if json.Unmarshal(body, &list) == nil {
						list["metadata"] = map[string]any{}
					}
					return apitest.Response(list, nil)
				})
			}
			return nil, nil
		},
		"answers that are cut off": func(r *rig, req *apitest.Request) (*http.Response, error) {
			if req.Verb == "watch" {
				return text(event("ADDED", foreign)[:50]), nil
			}
			return rewritten(r, req, func(body []byte) *http.Response { return text(string(body[:len(body)/2])) })
		},
		"objects of another kind": func(*rig, *apitest.Request) (*http.Response, error) { return text(other), nil },
		"successes": func(*rig, *apitest.Request) (*http.Response, error) {
			return text(`{"kind":"Status","apiVersion":"v1","status":"Success"}`), nil
		},
		"empty objects":                 func(*rig, *apitest.Request) (*http.Response, error) { return text(`{}`), nil },
		"nothing":                       func(*rig, *apitest.Request) (*http.Response, error) { return text(""), nil },
		"the login page of another net": func(*rig, *apitest.Request) (*http.Response, error) { return text("<html>Welcome</html>"), nil },
	} {
		t.Run(name, func(t *testing.T) {
			onNode(t, func(r *rig) {
				names := []string{"a", "b", "deleted"}
				for _, name := range names {
					r.api.Create(bound(name))
				}
				r.api.Create(bound("crashes"))
				r.static.Set(newStatic("static"))
				r.after(time.Minute)
				for _, name := range names {
					require.Len(r, r.rt.Running(fake.Target{Pod: name}), 1)
				}
				var requests atomic.Int64
				r.api.Before(func(req *apitest.Request) (*http.Response, error) {
					if req.HTTP.Header.Get(passedHeader) != "" {
						return nil, nil
					}
					requests.Add(1)
					return broken(r, req)
				})
				r.api.BreakWatches()
				require.Equal(r, 1, r.rt.Exit(fake.Target{Pod: "crashes"}, 1))
				r.after(10 * time.Minute)
				t.Logf("%.2f requests a second", float64(requests.Load())/600)
				assert.Less(r, requests.Load(), int64(2*600), "requests in 10 minutes")
				for _, name := range append(names, "static") {
					assert.Len(r, r.rt.Running(fake.Target{Pod: name}), 1, name)
					assert.Len(r, r.rt.Instances(fake.Target{Pod: name}), 1, name)
				}
				assert.Empty(r, r.rt.Instances(fake.Target{Pod: "foreign"}))
				r.api.Before(nil)
				r.api.BreakWatches()
				r.api.Create(bound("new"))
				r.api.Delete("default", "deleted", nil)
				r.after(2 * time.Minute)
				assert.Len(r, r.rt.Running(fake.Target{Pod: "new"}), 1)
				assert.Empty(r, r.rt.Running(fake.Target{Pod: "deleted"}))
				if pod := r.api.Get("default", "new"); assert.NotNil(r, pod) {
					assert.Equal(r, v1.PodRunning, pod.Status.Phase)
				}
				assert.Len(r, r.rt.Running(fake.Target{Pod: "crashes"}), 1)
				if pod := r.api.Get("default", "crashes"); assert.NotNil(r, pod) {
					assert.EqualValues(r, 1, pod.Status.ContainerStatuses[0].RestartCount)
				}
			})
		})
	}
}
