package nodenet

import (
	"context"
	"errors"
	"net/http"
	"sync"
)

// maxPages is the number of encoded pages in memory. Only slow clients need more: they get the
// newest of these pages, which is then as old as its slowest client.
const maxPages = 4

// maxSpare is the largest page whose memory is used again, in bytes. This memory is not released
// when there are no more requests.
const maxSpare = 256 << 10

// SharedPage encodes a page for requests. Requests at the same time share an encoding, which
// begins after they have arrived. Make it with [NewSharedPage].
type SharedPage struct {
	contentType string
	encode      func(buf []byte) ([]byte, error)
	bodies      Bodies
	// running has room for one token, which is there while a page is encoded.
	running chan struct{}

	mu sync.Mutex
	// next is not begun yet, nil if no request waits for it. newest is the last page that was
	// encoded, nil if no request uses it.
	next, newest *encoded
	// inMemory is the number of pages that requests use.
	inMemory int
	// spare is the memory of a page that is not used any more, for the next one.
	spare []byte
}

// encoded is an encoded page.
type encoded struct {
	ready chan struct{} // closed when body and err are valid
	body  *Body
	err   error
	users int // guarded by SharedPage.mu
}

var errPanicked = errors.New("encoding the page panicked")

// NewSharedPage returns a handler of a page. encode appends the page to buf, which is empty and has the
// memory of an earlier page or none. It is not called twice at the same time.
func NewSharedPage(contentType string, encode func(buf []byte) ([]byte, error)) *SharedPage {
	return &SharedPage{contentType: contentType, encode: encode, running: make(chan struct{}, 1)}
}

// ServeHTTP answers a request, with status 500 if the page cannot be encoded.
func (p *SharedPage) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	e, err := p.get(req.Context())
	defer p.release(e)
	if err == nil {
		err = e.err
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	e.body.ServeHTTP(w, req)
}

// get returns a page. The caller calls release when it does not need it any more, also
// after an error, which is that of ctx.
func (p *SharedPage) get(ctx context.Context) (*encoded, error) {
	p.mu.Lock()
	e := p.next
	if e == nil && p.inMemory >= maxPages {
		e = p.newest
	}
	if e != nil {
		e.users++
		p.mu.Unlock()
		select {
		case <-e.ready:
			return e, nil
		case <-ctx.Done():
			return e, ctx.Err()
		}
	}
	e = &encoded{ready: make(chan struct{}), users: 1, err: errPanicked}
	p.next = e
	p.inMemory++
	p.mu.Unlock()
	defer close(e.ready)
	returned := false
	defer func() {
		if !returned { // encode has panicked: the caller does not get the page
			p.release(e)
		}
	}()

	p.running <- struct{}{} // every encoding ends
	defer func() { <-p.running }()
	p.mu.Lock()
	p.next = nil // from here on changes may come too late for this page
	buf := p.spare
	p.spare = nil
	p.mu.Unlock()
	data, err := p.encode(buf)
	e.body, e.err = p.bodies.New(p.contentType, data), err
	p.mu.Lock()
	p.newest = e
	p.mu.Unlock()
	returned = true
	return e, nil
}

func (p *SharedPage) release(e *encoded) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e.users--; e.users > 0 {
		return
	}
	p.inMemory--
	if p.newest == e {
		p.newest = nil
	}
	if e.body != nil && cap(e.body.data) <= maxSpare {
		p.spare = e.body.data[:0]
	}
}
