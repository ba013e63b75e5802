package http_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/podconfig/fake"
	podhttp "github.com/kubeletkit/kubeletkit/podconfig/http"
)

func manifestOf(name, image string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %q}\nspec: {containers: [{name: c, image: %q}]}\n",
		name, image)
}

// server answers requests in memory. Tests change it under the lock.
type server struct {
	mu       sync.Mutex
	answer   func(*http.Request) (*http.Response, error)
	requests []*http.Request
	// times of the requests since the beginning.
	times []time.Duration
	began time.Time
}

func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	s.requests = append(s.requests, r)
	s.times = append(s.times, time.Since(s.began))
	answer := s.answer
	s.mu.Unlock()
	resp, err := answer(r)
	if resp != nil {
		resp.Request = r
	}
	return resp, err
}

// last returns the request that was made last.
func (s *server) last() *http.Request { return s.requests[len(s.requests)-1] }

func reply(status int, body string, header ...string) (*http.Response, error) {
	h := http.Header{}
	for i := 0; i+1 < len(header); i += 2 {
		h.Add(header[i], header[i+1])
	}
	return &http.Response{StatusCode: status, Status: fmt.Sprintf("%d %s", status, http.StatusText(status)), Header: h,
		Body: io.NopCloser(strings.NewReader(body))}, nil
}

// answers sets what the server answers from now on, and forgets the requests.
func (s *server) answers(f func(*http.Request) (*http.Response, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer, s.requests, s.times = f, nil, nil
}

// serves makes the server answer with a body.
func (s *server) serves(body string, header ...string) {
	s.answers(func(*http.Request) (*http.Response, error) { return reply(http.StatusOK, body, header...) })
}

// rig runs a source in virtual time and records its deliveries and problems.
type rig struct {
	t        *testing.T
	server   *server
	source   *podhttp.Source
	mu       sync.Mutex
	sets     []string
	pods     []*v1.Pod
	problems []string
	stop     func()
}

const testURL = "https://user:secret@host/pods"

// start runs a source of the server, and returns after the first answer.
func start(t *testing.T, s *server, opts podhttp.Options) *rig {
	t.Helper()
	r := &rig{t: t, server: s}
	s.began = time.Now()
	opts.Transport = s
	opts.Problem = func(url string, err error) {
		assert.Equal(t, "https://user:xxxxx@host/pods", url)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.problems = append(r.problems, fmt.Sprint(err))
	}
	var err error
	r.source, err = podhttp.New(testURL, opts)
	require.NoError(t, err)
	r.run()
	synctest.Wait()
	return r
}

func (r *rig) run() {
	ctx, cancel := context.WithCancel(r.t.Context())
	done := make(chan error)
	go func() {
		done <- r.source.Run(ctx, sink(func(pods []*v1.Pod) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.pods = pods
			var names []string
			for _, p := range pods {
				names = append(names, strings.TrimSuffix(p.Name, "-node")+"="+p.Spec.Containers[0].Image)
			}
			r.sets = append(r.sets, strings.Join(names, " "))
		}))
	}()
	r.stop = func() { cancel(); assert.NoError(r.t, <-done) }
}

// sink returns a sink of the node "node".
func sink(set func(pods []*v1.Pod)) podconfig.Sink { return fake.NewSink("node", set) }

// after lets time pass, and returns the deliveries and problems since the last call.
func (r *rig) after(d time.Duration) (sets, problems []string) {
	time.Sleep(d)
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	sets, problems = r.sets, r.problems
	r.sets, r.problems = nil, nil
	return sets, problems
}

// virtual runs a test in virtual time.
func virtual(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, f)
}
