package http

import (
	"bufio"
	"bytes"
	"net/http"
	"net/url"
	"testing"

	"github.com/kubeletkit/kubeletkit/podconfig/manifest"
)

// Whatever a server answers, an answer is used only if it is one.
func FuzzResponse(f *testing.F) {
	f.Add([]byte("HTTP/1.1 200 OK\r\nEtag: \"a\"\r\nContent-Length: 2\r\n\r\n{}"))
	f.Add([]byte("HTTP/1.1 304 Not Modified\r\nAge: 3\r\nCache-Control: max-age=9\r\n\r\n"))
	f.Add([]byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		req := &http.Request{Method: http.MethodGet, URL: &url.URL{Scheme: "http", Host: "localhost"},
			Header: http.Header{}}
		resp, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(data)), req)
		if err != nil {
			return
		}
		defer resp.Body.Close()
		for _, last := range []*answer{nil, {url: req.URL.String(), etag: `"a"`}} {
			a, err := last.read(resp)
			switch {
			case err != nil:
			case a.unchanged && last == nil:
				t.Error("there is no last answer")
			case resp.StatusCode != http.StatusOK && !a.unchanged:
				t.Errorf("status %d is an answer", resp.StatusCode)
			default:
				_, _ = manifest.Load(a.body, manifest.Options{NodeName: "node", Origin: "url"})
				a.condition(req)
			}
		}
	})
}
