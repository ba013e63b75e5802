package page_test

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"go.uber.org/goleak"

	"github.com/kubeletkit/kubeletkit/internal/page"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func serve(h http.Handler) (rec *httptest.ResponseRecorder) {
	rec = httptest.NewRecorder()
	h.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/", nil))
	return rec
}

// Requests that come while a page is encoded share the next one.
func TestSharedEncodings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var encoded atomic.Int64
		p := page.NewShared("text/plain", func() ([]byte, error) {
			encoded.Add(1)
			time.Sleep(time.Second)
			return []byte("page"), nil
		})
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() { assert.Equal(t, "page", serve(p).Body.String()) })
		}
		all.Wait()
		assert.LessOrEqual(t, encoded.Load(), int64(2))
		assert.Equal(t, "4", serve(p).Header().Get("Content-Length"))
	})
}

// A panic is that of its request; the others get an error.
func TestAnEncodingThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := page.NewShared("text/plain", func() ([]byte, error) {
			time.Sleep(time.Second)
			panic("no")
		})
		var all sync.WaitGroup
		var failed atomic.Int64
		for range 3 {
			all.Go(func() {
				defer func() {
					if recover() != nil {
						failed.Add(1)
					}
				}()
				if serve(p).Code == http.StatusInternalServerError {
					failed.Add(1)
				}
			})
		}
		all.Wait()
		assert.EqualValues(t, 3, failed.Load())
	})
}

func TestAcceptedEncodings(t *testing.T) {
	b := new(page.Bodies).New("text/plain", make([]byte, 1<<16))
	for header, zipped := range map[string]bool{"": false, "gzip": true, "deflate, gzip;q=0.5": true, "gzip; q=0": false, "gzip;q=0.000": false, "br": false} {
		rec, req := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil)
		req.Header.Set("Accept-Encoding", header)
		b.ServeHTTP(rec, req)
		assert.Equal(t, zipped, rec.Header().Get("Content-Encoding") == "gzip", header)
	}
}
