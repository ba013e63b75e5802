package http_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/podconfig/fake"
	podhttp "github.com/kubeletkit/kubeletkit/podconfig/http"
	"github.com/kubeletkit/kubeletkit/podconfig/manifest"
	"github.com/kubeletkit/kubeletkit/runtime"
)

func TestPodsFollowTheServer(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := &server{}
		s.serves(manifestOf("a", "1"))
		r := start(t, s, podhttp.Options{Header: http.Header{"x-token": {"1", "2"}}})
		defer r.stop()
		sets, problems := r.after(0)
		assert.Equal(t, []string{"a=1"}, sets)
		assert.Empty(t, problems)
		assert.Equal(t, "http", r.source.Name())
		assert.Equal(t, "http", r.pods[0].Annotations["kubernetes.io/config.source"])
		assert.Empty(t, r.pods[0].Spec.Tolerations, "pods from a URL get no tolerations, pods from files do")
		assert.Equal(t, []string{"1", "2"}, s.last().Header.Values("X-Token"))

		for _, step := range []struct{ body, want string }{
			{manifestOf("a", "1"), "none"},
			{manifestOf("a", "2"), "a=2"},
			{manifestOf("a", "2") + "---\n" + manifestOf("b", "1"), "a=2 b=1"},
			{`{"apiVersion":"v1","kind":"PodList","items":[]}`, ""},
			{`{"apiVersion":"v1","kind":"PodList","items":[{"metadata":{"name":"c"},"spec":{"containers":[{"name":"c","image":"1"}]}}]}`, "c=1"},
		} {
			s.serves(step.body)
			sets, problems := r.after(20 * time.Second)
			if step.want == "none" {
				assert.Empty(t, sets)
			} else {
				assert.Equal(t, []string{step.want}, sets)
			}
			assert.Empty(t, problems)
		}
	})
}

// TestLastGoodPodsStay has all kinds of failures.
func TestLastGoodPodsStay(t *testing.T) {
	for name, tc := range map[string]struct {
		answer func(*http.Request) (*http.Response, error)
		err    string
	}{
		"no connection":       {func(*http.Request) (*http.Response, error) { return nil, errors.New("connection refused") }, "connection refused"},
		"no answer":           {func(r *http.Request) (*http.Response, error) { return hang(r) }, "no complete answer within 10s"},
		"half an answer":      {func(r *http.Request) (*http.Response, error) { return hangInBody(r) }, "no complete answer within 10s"},
		"broken off":          {func(*http.Request) (*http.Response, error) { return broken() }, "unexpected EOF"},
		"not found":           {func(*http.Request) (*http.Response, error) { return reply(404, manifestOf("x", "1")) }, "the server answered 404 Not Found"},
		"overload":            {func(*http.Request) (*http.Response, error) { return reply(503, "") }, "503 Service Unavailable"},
		"no content":          {func(*http.Request) (*http.Response, error) { return reply(204, "") }, "204 No Content"},
		"part of it":          {func(*http.Request) (*http.Response, error) { return reply(206, manifestOf("x", "1")) }, "206 Partial Content"},
		"nothing asked for":   {func(*http.Request) (*http.Response, error) { return reply(304, "") }, "304 Not Modified"},
		"redirect to nowhere": {func(*http.Request) (*http.Response, error) { return reply(302, "") }, "302 Found"},
		"empty":               {func(*http.Request) (*http.Response, error) { return reply(200, "") }, "the manifest is empty"},
		"blank":               {func(*http.Request) (*http.Response, error) { return reply(200, "\n# x\n---\n") }, "the manifest is empty"},
		"a web page": {func(*http.Request) (*http.Response, error) {
			return reply(200, "<!DOCTYPE html>\n<html><body>Log in</body></html>\n")
		}, "not a manifest"},
		"garbage":      {func(*http.Request) (*http.Response, error) { return reply(200, "\x00\x01\x02") }, "control characters are not allowed"},
		"another kind": {func(*http.Request) (*http.Response, error) { return reply(200, "apiVersion: v1\nkind: Status\n") }, `kind: Unsupported value: "Status"`},
		"one pod of two wrong": {func(*http.Request) (*http.Response, error) {
			return reply(200, manifestOf("b", "1")+"---\n"+manifestOf("B", "1"))
		}, `document 2 (line 5): pod default/B-node is invalid: metadata.name`},
		"an unknown field": {func(*http.Request) (*http.Response, error) { return reply(200, manifestOf("a", "1")+"spek: {}\n") }, `unknown field "spek"`},
		"too large": {func(*http.Request) (*http.Response, error) {
			return reply(200, manifestOf("b", "1")+strings.Repeat("#\n", manifest.MaxSize/2))
		}, "manifest is larger than 10 MiB"},
		"much too large": {func(*http.Request) (*http.Response, error) {
			resp, err := reply(200, manifestOf("b", "1"))
			resp.ContentLength = 1 << 40
			return resp, err
		}, "manifest is larger than 10 MiB"},
		"less safe": {func(r *http.Request) (*http.Response, error) { return reply(302, "", "Location", "http://host/pods") }, "redirects from https to http"},
		"a long status": {func(*http.Request) (*http.Response, error) {
			resp, err := reply(500, "")
			resp.Status = "500 " + strings.Repeat("no ", 1<<18)
			return resp, err
		}, "the server answered 500 no no"},
		"a long redirect": {func(r *http.Request) (*http.Response, error) {
			return reply(302, "", "Location", "http://host/pods/"+strings.Repeat("x", 1<<20))
		}, "/pods/xxx"},
		"a circle": {func(r *http.Request) (*http.Response, error) { return reply(302, "", "Location", "/pods") }, "stopped after 10 redirects"},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				s := &server{}
				s.serves(manifestOf("a", "1"))
				r := start(t, s, podhttp.Options{})
				defer r.stop()
				sets, _ := r.after(0)
				require.Equal(t, []string{"a=1"}, sets)
				uid := r.pods[0].UID

				s.answers(tc.answer)
				sets, problems := r.after(time.Minute)
				assert.Empty(t, sets)
				require.Len(t, problems, 1, "reported once")
				assert.Contains(t, problems[0], tc.err)
				assert.Contains(t, problems[0], "/pods")
				assert.NotContains(t, problems[0], "secret")
				assert.Less(t, len(problems[0]), 10_000)

				s.serves(manifestOf("a", "1"))
				_, problems = r.after(30 * time.Second)
				assert.Equal(t, []string{"<nil>"}, problems)
				assert.Equal(t, uid, r.pods[0].UID)
				s.serves(manifestOf("a", "2"))
				sets, _ = r.after(20 * time.Second)
				assert.Equal(t, []string{"a=2"}, sets)
			})
		})
	}
}

func hang(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, context.Cause(r.Context())
}

type reader func(p []byte) (int, error)

func (f reader) Read(p []byte) (int, error) { return f(p) }

func hangInBody(r *http.Request) (*http.Response, error) {
	resp, err := reply(200, "")
	resp.Body = io.NopCloser(io.MultiReader(strings.NewReader(manifestOf("b", "1")), reader(func([]byte) (int, error) {
		<-r.Context().Done()
		return 0, context.Cause(r.Context())
	})))
	return resp, err
}

func broken() (*http.Response, error) {
	resp, err := reply(200, "")
	resp.Body = io.NopCloser(io.MultiReader(strings.NewReader(manifestOf("b", "1")),
		reader(func([]byte) (int, error) { return 0, io.ErrUnexpectedEOF })))
	return resp, err
}

// TestUnseenUntilRead: an invalid answer delivers nothing, an empty list delivers no
// pods.
func TestUnseenUntilRead(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := &server{answer: func(*http.Request) (*http.Response, error) { return reply(200, "") }}
		r := start(t, s, podhttp.Options{})
		defer r.stop()
		sets, problems := r.after(time.Minute)
		assert.Empty(t, sets)
		assert.Len(t, problems, 1)
		s.serves("apiVersion: v1\nkind: PodList\n")
		sets, _ = r.after(20 * time.Second)
		assert.Equal(t, []string{""}, sets)
	})
}

func TestRetriesComeSooner(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := &server{answer: func(*http.Request) (*http.Response, error) { return nil, errors.New("no route to host") }}
		r := start(t, s, podhttp.Options{})
		defer r.stop()
		r.after(71 * time.Second)
		seconds := func(n ...time.Duration) []time.Duration {
			for i := range n {
				n[i] *= time.Second
			}
			return n
		}
		assert.Equal(t, seconds(0, 1, 3, 7, 15, 31, 51, 71), s.times)
		s.serves(manifestOf("a", "1"))
		r.after(20 * time.Second)
		s.answers(func(*http.Request) (*http.Response, error) { return nil, errors.New("no route to host") })
		r.after(22 * time.Second)
		assert.Equal(t, seconds(111, 112), s.times)
	})
}

// conditions are the validators that a request has.
func conditions(r *http.Request) []string {
	return []string{r.Header.Get("If-None-Match"), r.Header.Get("If-Modified-Since")}
}

func TestUnchangedAnswers(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := &server{}
		const monday, later = "Mon, 03 Jan 2000 00:00:00 GMT", "Mon, 03 Jan 2000 00:00:02 GMT"
		s.serves(manifestOf("a", "1"), "Etag", `"1"`, "Last-Modified", monday, "Date", later)
		r := start(t, s, podhttp.Options{})
		defer r.stop()
		assert.Equal(t, []string{"", ""}, conditions(s.last()))
		s.answers(func(r *http.Request) (*http.Response, error) {
			assert.Equal(t, []string{`"1"`, monday}, conditions(r))
			return reply(304, "")
		})
		r.after(0)
		sets, problems := r.after(time.Minute)
		assert.Empty(t, sets)
		assert.Empty(t, problems)
		assert.Len(t, s.requests, 3)

		// An invalid answer has validators too. It stays the problem.
		s.serves("[", "Etag", `"2"`)
		_, problems = r.after(20 * time.Second)
		assert.Len(t, problems, 1)
		s.answers(func(r *http.Request) (*http.Response, error) {
			assert.Equal(t, []string{`"2"`, ""}, conditions(r))
			return reply(304, "")
		})
		_, problems = r.after(20 * time.Second)
		assert.Empty(t, problems)

		// Content that was just modified may change again with the same validators.
		s.serves(manifestOf("a", "2"), "Etag", `"3"`, "Last-Modified", later, "Date", later)
		sets, problems = r.after(20 * time.Second)
		assert.Equal(t, []string{"a=2"}, sets)
		assert.Equal(t, []string{"<nil>"}, problems)
		s.serves(manifestOf("a", "3"), "Etag", `"3"`, "Last-Modified", later, "Date", later)
		sets, _ = r.after(20 * time.Second)
		assert.Equal(t, []string{"a=3"}, sets)
		assert.Equal(t, []string{"", ""}, conditions(s.last()))
	})
}

// TestUnchangedBodyIsNotParsed: after an hour of equal answers the pods are the same
// pointers.
func TestUnchangedBodyIsNotParsed(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := &server{}
		s.serves(manifestOf("a", "1"))
		r := start(t, s, podhttp.Options{})
		defer func() { r.stop() }()
		pods := r.pods
		r.after(time.Hour)
		assert.Len(t, s.requests, 181)
		r.stop()
		r.pods = nil
		r.run()
		r.after(0)
		require.Len(t, r.pods, 1)
		assert.Same(t, pods[0], r.pods[0])
	})
}

func TestRedirects(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := &server{}
		const final = "https://elsewhere/b"
		locations := map[string]string{testURL: "https://user:secret@host/a", "https://user:secret@host/a": final}
		answer := func(r *http.Request) (*http.Response, error) {
			if to := locations[r.URL.String()]; to != "" {
				return reply(302, "", "Location", to)
			}
			return reply(200, manifestOf("a", "1"), "Etag", `"1"`)
		}
		s.answers(answer)
		r := start(t, s, podhttp.Options{Header: http.Header{"x-token": {"1"}, "Authorization": {"Bearer 1"}}})
		defer r.stop()
		require.Len(t, s.requests, 3)
		for _, req := range s.requests[:2] {
			assert.Equal(t, "1", req.Header.Get("X-Token"), req.URL)
			assert.Equal(t, "Bearer 1", req.Header.Get("Authorization"), req.URL)
			assert.Empty(t, req.Header.Get("If-None-Match"))
		}
		assert.Equal(t, http.Header{}, s.requests[2].Header)

		// The validators belong to the URL of the answer.
		s.answers(answer)
		r.after(20 * time.Second)
		require.Len(t, s.requests, 3)
		assert.Empty(t, s.requests[0].Header.Get("If-None-Match"))
		assert.Equal(t, http.Header{"If-None-Match": {`"1"`}}, s.requests[2].Header)

		// A redirect back from another origin does not bring back the headers.
		locations[final] = "https://host/c"
		s.answers(answer)
		r.after(20 * time.Second)
		require.Len(t, s.requests, 4)
		assert.Equal(t, http.Header{}, s.requests[3].Header)
	})
}

func TestFailuresAreLoggedLessAndLess(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var loud, quiet []string
		logger := funcr.New(func(_, args string) {
			if strings.Contains(args, `"level"=4`) {
				quiet = append(quiet, args)
			} else {
				loud = append(loud, args)
			}
		}, funcr.Options{Verbosity: 4})
		s := &server{answer: func(*http.Request) (*http.Response, error) { return reply(500, "") }}
		r := start(t, s, podhttp.Options{Logger: logger, CheckFrequency: time.Second})
		defer r.stop()
		r.after(199 * time.Second)
		require.Len(t, loud, 9)
		for i, n := range []int{1, 2, 4, 8, 16, 32, 64, 128, 192} {
			assert.Contains(t, loud[i], fmt.Sprintf(`"failures"=%d`, n))
			assert.Contains(t, loud[i], "500 Internal Server Error")
			assert.NotContains(t, loud[i], "secret")
		}
		assert.Len(t, quiet, 191)
		s.serves(manifestOf("a", "1"))
		r.after(time.Second)
		require.Len(t, loud, 10)
		assert.Contains(t, loud[9], "Pods can be read again")
		assert.Contains(t, loud[9], `"failures"=200`)
	})
}

func TestAsKubelet(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := &server{}
		s.serves(manifestOf("a", "1") + "spek: {}\n")
		r := start(t, s, podhttp.Options{AsKubelet: true})
		defer r.stop()
		assert.Equal(t, []string{"a=1"}, r.sets)
		assert.Equal(t, []string{`unknown field "spek"`}, r.problems)
		s.serves(manifestOf("a", "2"))
		sets, problems := r.after(time.Minute)
		assert.Equal(t, []string{"a=1", "a=2"}, sets)
		assert.Equal(t, []string{`unknown field "spek"`, "<nil>"}, problems)
	})
}

// TestRunAgain: the next run begins with the pods of the first.
func TestRunAgain(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := &server{}
		s.serves(manifestOf("a", "1"))
		r := start(t, s, podhttp.Options{})
		require.ErrorIs(t, r.source.Run(t.Context(), nil), runtime.ErrAlreadyRunning)
		r.stop()
		r.after(0)
		s.answers(func(*http.Request) (*http.Response, error) { return nil, errors.New("no") })
		r.run()
		sets, _ := r.after(time.Second)
		assert.Equal(t, []string{"a=1"}, sets)
		r.stop()
	})
}

// TestEndsAtOnce ends during a request.
func TestEndsAtOnce(t *testing.T) {
	virtual(t, func(t *testing.T) {
		r := start(t, &server{answer: hang}, podhttp.Options{})
		r.stop()
		assert.Zero(t, time.Since(r.server.began))
		assert.Empty(t, r.problems)
	})
}

func TestNewErrors(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		url  string
		opts podhttp.Options
		err  string
	}{
		"no scheme":           {"host/pods", podhttp.Options{}, `URL "host/pods" must begin with http:// or https:// and a host`},
		"no host":             {"https:///pods", podhttp.Options{}, "and a host"},
		"a file":              {"file:///pods", podhttp.Options{}, "must begin with http"},
		"no URL":              {"https://u:secret@host:x/", podhttp.Options{}, "the URL does not parse"},
		"half a pair":         {"https://host", podhttp.Options{CertFile: "x"}, "CertFile and KeyFile go together"},
		"files and transport": {"https://host", podhttp.Options{CAFile: "x", Transport: http.DefaultTransport}, "have no effect on a Transport"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := podhttp.New(tc.url, tc.opts)
			require.ErrorContains(t, err, tc.err)
			assert.NotContains(t, err.Error(), "secret")
		})
	}
	s, err := podhttp.New("http://host", podhttp.Options{Name: "n"})
	require.NoError(t, err)
	assert.Equal(t, "n", s.Name())
}

func TestNodeNameIsRequired(t *testing.T) {
	t.Parallel()
	s, err := podhttp.New(testURL, podhttp.Options{})
	require.NoError(t, err)
	err = s.Run(t.Context(), fake.NewSink("", nil))
	require.EqualError(t, err, "http source https://user:xxxxx@host/pods: no node name given; set "+
		"podconfig.Options.NodeName")
}

// A pod of the server that is not valid has one record of that in its history.
func TestRejectedPodsAreRecorded(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := &server{}
		s.serves(manifestOf("A", "1"))
		s.began = time.Now()
		source, err := podhttp.New(testURL, podhttp.Options{Transport: s})
		require.NoError(t, err)
		records := make(chan runtime.Record, 100)
		mux, err := podconfig.New(podconfig.Options{
			NodeName: "node", Sources: []podconfig.Source{source}, Observer: runtime.Observer{
				Record: func(r runtime.Record) { records <- r }},
		})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		require.NoError(t, mux.Run(ctx))
		require.Len(t, records, 1)
		r := <-records
		assert.Equal(t, runtime.KindReject, r.Kind)
		assert.EqualValues(t, "http", r.Source)
		assert.Equal(t, "A-node", r.Pod.Name)
		assert.Contains(t, r.Message, "metadata.name: Invalid value")
	})
}

// staticUIDs is a sink that decides UIDs.
type staticUIDs struct {
	podconfig.Sink
	asked *[]podconfig.StaticPod
}

func (s staticUIDs) StaticUID(ctx context.Context, pod podconfig.StaticPod) types.UID {
	*s.asked = append(*s.asked, pod)
	return "decided"
}

// The sink decides the UIDs, with the time of the last change if the server tells it.
func TestStaticUID(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := &server{}
		source, err := podhttp.New(testURL, podhttp.Options{Transport: s})
		require.NoError(t, err)
		var asked []podconfig.StaticPod
		var pods []*v1.Pod
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		s.serves(manifestOf("a", "1"), "Last-Modified", "Sat, 01 Jan 2000 00:00:00 GMT")
		go func() { done <- source.Run(ctx, staticUIDs{sink(func(set []*v1.Pod) { pods = set }), &asked}) }()
		synctest.Wait()
		require.Len(t, pods, 1)
		assert.EqualValues(t, "decided", pods[0].UID)
		s.serves(manifestOf("a", "2"))
		time.Sleep(time.Minute)
		synctest.Wait()
		cancel()
		require.NoError(t, <-done)
		require.Len(t, asked, 2)
		assert.Equal(t, time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC), asked[0].Modified.UTC())
		assert.Zero(t, asked[1].Modified)
		assert.NotEqual(t, asked[0].Manifest, asked[1].Manifest)
	})
}
