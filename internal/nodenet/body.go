package nodenet

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Bodies makes the answers of one page. The zero value is ready.
type Bodies struct {
	// writers has gzip writers that are not in use. Each takes a megabyte, ten times a page.
	writers sync.Pool
}

// Body is an encoded answer, which any number of requests share.
type Body struct {
	contentType string
	data        []byte
	writers     *sync.Pool
	zip         sync.Once
	zipped      []byte
}

// New returns a Body. data must not be changed any more.
func (b *Bodies) New(contentType string, data []byte) *Body {
	return &Body{contentType: contentType, data: data, writers: &b.writers}
}

// minZipped is the size from which on an answer is compressed for clients that accept it.
const minZipped = 2 << 10

// writeTimeout is the time that a client may take to receive an answer.
const writeTimeout = 30 * time.Second

// ServeHTTP answers a request. The answer is one write, and holds nothing but the Body while
// a client is slow.
func (b *Body) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	data, h := b.data, w.Header()
	h.Set("Content-Type", b.contentType)
	h.Set("Vary", "Accept-Encoding")
	if len(data) >= minZipped && acceptsGzip(req.Header.Get("Accept-Encoding")) {
		data = b.gzip()
		h.Set("Content-Encoding", "gzip")
	}
	h.Set("Content-Length", strconv.Itoa(len(data)))
	if req.Method == http.MethodHead {
		return
	}
	// The answer stays in memory until then, so that even a trusted client must not pause.
	c := http.NewResponseController(w)
	_ = c.SetWriteDeadline(time.Now().Add(writeTimeout)) // not with a recorder of tests
	_, err := w.Write(data)
	if err == nil {
		err = c.Flush()
	}
	if err == nil { // else the client has disconnected
		_ = c.SetWriteDeadline(time.Time{})
	}
}

// gzip compresses the answer for the first client that accepts that.
func (b *Body) gzip() []byte {
	b.zip.Do(func() {
		w, ok := b.writers.Get().(*gzip.Writer)
		if !ok {
			w, _ = gzip.NewWriterLevel(io.Discard, gzip.BestSpeed) // the level is valid
		}
		defer b.writers.Put(w)
		var out bytes.Buffer
		out.Grow(len(b.data) / 8)
		w.Reset(&out)
		_, _ = w.Write(b.data) // a buffer does not fail
		_ = w.Close()
		b.zipped = out.Bytes()
	})
	return b.zipped
}

func acceptsGzip(header string) bool {
	for part := range strings.SplitSeq(header, ",") {
		coding, params, _ := strings.Cut(part, ";")
		if strings.EqualFold(strings.TrimSpace(coding), "gzip") {
			quality := strings.ReplaceAll(params, " ", "")
			return quality != "q=0" && quality != "q=0.0" && quality != "q=0.00" && quality != "q=0.000"
		}
	}
	return false
}
