package bounded

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// answers is a transport with a response.
type answers struct{ resp *http.Response }

func (a answers) RoundTrip(*http.Request) (*http.Response, error) { return a.resp, nil }

// endless repeats a text. It is read in large blocks.
func endless(text string) io.Reader {
	return &repeated{text: strings.Repeat(text, 32<<10/len(text)+1)}
}

type repeated struct{ text, left string }

func (r *repeated) Read(p []byte) (int, error) {
	if r.left == "" {
		r.left = r.text
	}
	n := copy(p, r.left)
	r.left = r.left[n:]
	return n, nil
}

// read returns how much of a response was read, and the error.
func read(t *testing.T, query, contentType string, content io.Reader) (int64, error) {
	resp := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {contentType}}, ContentLength: -1, Body: io.NopCloser(content)}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://api/api/v1/pods?"+query, http.NoBody)
	require.NoError(t, err)
	got, err := Transport(Transport(answers{resp})).RoundTrip(req)
	if err != nil {
		return 0, err
	}
	n, err := io.Copy(io.Discard, got.Body)
	require.NoError(t, got.Body.Close())
	return n, err
}

// A response without end is given up.
func TestEndlessResponses(t *testing.T) {
	t.Parallel()
	n, err := read(t, "", "application/json", endless(`{"items": [`))
	require.ErrorIs(t, err, ErrTooLarge)
	assert.LessOrEqual(t, n, int64(maxBody))
	_, err = read(t, "", "application/json", io.LimitReader(endless("x"), maxBody))
	require.NoError(t, err)
}

// An event without end is given up, a watch without end is not.
func TestEndlessEvents(t *testing.T) {
	t.Parallel()
	event := `{"type": "ADDED", "object": {"a": ["}", "\"}", {}, [[]]]}}` + "\n"
	const many = 3 * maxEvent
	n, err := read(t, "watch=true", "application/json", io.LimitReader(endless(event), many))
	require.NoError(t, err)
	assert.Equal(t, int64(many), n)
	_, err = read(t, "watch=true", "application/json", iotest.OneByteReader(io.LimitReader(endless(event), 10*int64(len(event)))))
	require.NoError(t, err)
	for _, text := range []string{`"`, "1", " ", "\n", "{", "[{}", `{"a": {}, `, `\`} {
		n, err := read(t, "watch=1", "application/json", io.MultiReader(strings.NewReader(event), io.LimitReader(endless(text), many)))
		require.ErrorIs(t, err, ErrTooLarge, text)
		assert.Less(t, n, int64(maxEvent+1<<20), text)
	}
	_, err = read(t, "watch=true", "application/vnd.kubernetes.protobuf;stream=watch", io.LimitReader(endless("x"), many))
	require.NoError(t, err, "apimachinery bounds these")
}

// A small compressed response is a large one.
func TestCompressedResponses(t *testing.T) {
	t.Parallel()
	const block = 1 << 20
	var member bytes.Buffer
	w := gzip.NewWriter(&member)
	_, err := io.CopyN(w, endless(" "), block)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	bomb := bytes.Repeat(member.Bytes(), maxBody/block+1) // gzip may have any number of members
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		w.Header().Set("Content-Length", strconv.Itoa(len(bomb)))
		_, _ = w.Write(bomb)
	}))
	defer srv.Close()
	rt := &http.Transport{}
	defer rt.CloseIdleConnections()
	resp, err := (&http.Client{Transport: Transport(rt)}).Get(srv.URL)
	require.NoError(t, err)
	defer resp.Body.Close()
	n, err := io.Copy(io.Discard, resp.Body)
	require.ErrorIs(t, err, ErrTooLarge)
	assert.LessOrEqual(t, n, int64(maxBody))
}

func TestAnnouncedSize(t *testing.T) {
	t.Parallel()
	resp := &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, ContentLength: maxBody + 1, Body: io.NopCloser(endless("x"))}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://api/", http.NoBody)
	require.NoError(t, err)
	_, err = Transport(answers{resp}).RoundTrip(req) //nolint:bodyclose // there is no response
	require.ErrorIs(t, err, ErrTooLarge)
}

// A response with an error is small, also to a request for a watch.
func TestLargeErrors(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"http://api/", "http://api/?watch=true"} {
		for _, length := range []int64{-1, maxError + 1} {
			resp := &http.Response{StatusCode: http.StatusForbidden, Header: http.Header{}, ContentLength: length, Body: io.NopCloser(io.LimitReader(endless("x"), maxError+1))}
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
			require.NoError(t, err)
			got, err := Transport(answers{resp}).RoundTrip(req)
			if err == nil {
				_, err = io.Copy(io.Discard, got.Body)
				require.NoError(t, got.Body.Close())
			}
			require.ErrorIs(t, err, ErrTooLarge)
		}
	}
}

// A redirect leads the node nowhere.
func TestRedirects(t *testing.T) {
	t.Parallel()
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a request to another host") }))
	defer other.Close()
	for _, code := range []int{301, 302, 303, 307, 308} {
		srv := httptest.NewServer(http.RedirectHandler(other.URL, code))
		rt := &http.Transport{}
		resp, err := (&http.Client{Transport: Transport(rt)}).Get(srv.URL)
		require.NoError(t, err)
		assert.Equal(t, code, resp.StatusCode)
		require.NoError(t, resp.Body.Close())
		rt.CloseIdleConnections()
		srv.Close()
	}
}
