package nodenet_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"go.uber.org/goleak"

	"github.com/kubeletkit/kubeletkit/internal/nodenet"
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
		p := nodenet.NewSharedPage("text/plain", func([]byte) ([]byte, error) {
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
		p := nodenet.NewSharedPage("text/plain", func([]byte) ([]byte, error) {
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

// slow is a client that reads when it may.
type slow struct {
	*httptest.ResponseRecorder
	may chan struct{}
}

func (s slow) Write(data []byte) (int, error) {
	<-s.may
	return s.ResponseRecorder.Write(data)
}

// An encoding that has panicked does not count as a page in memory.
func TestPanicsDoNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		encoded := 0
		p := nodenet.NewSharedPage("text/plain", func([]byte) ([]byte, error) {
			if encoded++; encoded <= 10 {
				panic("no")
			}
			return []byte(strconv.Itoa(encoded)), nil
		})
		for range 10 {
			assert.Panics(t, func() { serve(p) })
		}
		s := slow{httptest.NewRecorder(), make(chan struct{})}
		var done sync.WaitGroup
		done.Go(func() { p.ServeHTTP(s, httptest.NewRequest(http.MethodGet, "/", nil)) })
		synctest.Wait()
		assert.Equal(t, "12", serve(p).Body.String(), "not the page of the slow client")
		close(s.may)
		done.Wait()
		assert.Equal(t, "11", s.Body.String())
	})
}

func TestAcceptedEncodings(t *testing.T) {
	b := new(nodenet.Bodies).New("text/plain", make([]byte, 1<<16))
	for header, zipped := range map[string]bool{"": false, "gzip": true, "deflate, gzip;q=0.5": true,
		"gzip; q=0": false, "gzip;q=0.000": false, "br": false} {
		rec, req := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil)
		req.Header.Set("Accept-Encoding", header)
		b.ServeHTTP(rec, req)
		assert.Equal(t, zipped, rec.Header().Get("Content-Encoding") == "gzip", header)
	}
}

// The memory of a page is used again when no request uses the page any more.
func TestMemoryIsUsedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var spare []int
		n := 0
		p := nodenet.NewSharedPage("text/plain", func(buf []byte) ([]byte, error) {
			n++
			assert.Empty(t, buf)
			spare = append(spare, cap(buf))
			if n == 1 {
				buf = make([]byte, 0, 64)
			}
			return fmt.Appendf(buf, "page %d", n), nil
		})
		assert.Equal(t, "page 1", serve(p).Body.String())
		assert.Equal(t, "page 2", serve(p).Body.String())
		s := slow{httptest.NewRecorder(), make(chan struct{})}
		var done sync.WaitGroup
		done.Go(func() { p.ServeHTTP(s, httptest.NewRequest(http.MethodGet, "/", nil)) })
		synctest.Wait()
		assert.Equal(t, "page 4", serve(p).Body.String())
		close(s.may)
		done.Wait()
		assert.Equal(t, "page 3", s.Body.String())
		assert.Equal(t, []int{0, 64, 64, 0}, spare)
	})
}
