package streaming

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
)

// The libraries of SPDY and WebSocket collect whole frames in memory, of up to 16 and 32 MiB. The library
// of SPDY collects 250 of them while nothing reads their streams. The readers of this file bound that.
const (
	// maxControl is the maximum size of a control frame of SPDY, in bytes. kubectl's have about 100. Its
	// headers are compressed.
	maxControl = 1 << 10
	// maxData is the maximum size of a data frame of SPDY for the library.
	maxData = 16 << 10
	// smallFrame is the size up to which frames of WebSockets are free, and maxLarge the size of
	// all larger ones of all sessions at once. kubectl's have 32 KiB.
	smallFrame = 64 << 10
	maxLarge   = 64 << 20
)

var (
	errControlFrame = fmt.Errorf("a control frame has more than %d bytes, or is none of a client", maxControl)
	errStreamID     = errors.New("the numbers of streams do not rise")
	errLargeFrames  = fmt.Errorf("the large frames of all clients have more than %d bytes", maxLarge)
)

// frames passes the header of each frame to begin, and data on. It is for one goroutine.
type frames struct {
	r io.Reader
	// need returns the size of the header that begins with the bytes, or one byte more than there are.
	need func(header []byte) int
	// begin takes a whole header. It returns the bytes to pass on in its place, and the number of bytes
	// that follow before the next header. After these it is called with nil, until it returns nothing.
	begin func(header []byte) (out []byte, follow uint64, err error)

	header []byte // of which some bytes are missing
	out    []byte
	follow uint64
}

// Read implements [io.Reader].
func (f *frames) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for {
		if len(f.out) > 0 {
			n := copy(p, f.out)
			f.out = f.out[n:]
			return n, nil
		}
		if f.follow > 0 {
			n, err := f.r.Read(p[:min(uint64(len(p)), f.follow)])
			f.follow -= uint64(n)
			return n, err
		}
		var err error
		if f.out, f.follow, err = f.begin(nil); err != nil {
			return 0, err
		}
		if len(f.out) > 0 {
			continue
		}
		for missing := f.need(f.header) - len(f.header); missing > 0; missing = f.need(f.header) - len(f.header) {
			var more [16]byte
			n, err := f.r.Read(more[:min(missing, len(more))])
			f.header = append(f.header, more[:n]...)
			if err != nil {
				return 0, err
			}
		}
		f.out, f.follow, err = f.begin(f.header)
		f.header = f.header[:0]
		if err != nil {
			return 0, err
		}
	}
}

// spdyFrames returns a reader of the frames of a SPDY connection in which those of data are
// small. It refuses large control frames.
func spdyFrames(r io.Reader) io.Reader {
	return smallFrames(r, func([]byte) int { return spdyHeader }, func(h []byte) ([]byte, error) { return h, nil })
}

const (
	spdyHeader = 8 // bytes
	// maxBegins is the maximum number of streams that wait for the library. Each has its headers, which are
	// up to 1 MiB when they are decompressed.
	maxBegins = 16
)

// The types of control frames of SPDY.
const (
	synStream    = 1
	rstStream    = 3
	settings     = 4
	ping         = 6
	goAway       = 7
	windowUpdate = 9
)

// clientFrames returns spdyFrames for a client, of which the library must not get everything:
//
//   - For a stream with a number that is not higher than all before, it starts a goroutine, which waits while
//     the client does not read.
//   - No client sends a HEADERS frame. The library waits for ever until somebody reads it.
//   - A reset of a stream whose reply could not be sent waits for ever. Its place is taken by the end of the
//     stream, which is the same to its reader.
//   - The headers of streams are large.
func (s *Session) clientFrames(r io.Reader) io.Reader {
	next := uint32(1)
	kind := func(h []byte) uint16 {
		if h[0]&0x80 == 0 {
			return 0
		}
		return binary.BigEndian.Uint16(h[2:])
	}
	return smallFrames(r, func(h []byte) int {
		switch {
		case len(h) < spdyHeader:
			return spdyHeader
		case kind(h) == synStream && length(h) >= 10:
			return spdyHeader + 4
		case kind(h) == rstStream && length(h) == 8:
			return spdyHeader + 8
		}
		return spdyHeader
	}, func(h []byte) ([]byte, error) {
		switch k := kind(h); {
		case k == synStream && len(h) > spdyHeader:
			id := binary.BigEndian.Uint32(h[spdyHeader:])
			if id < next || id > 1<<31-3 {
				return nil, errStreamID
			}
			next = id + 2
			select {
			case s.begins <- struct{}{}:
			case <-s.ctx.Done():
				return nil, s.ctx.Err()
			}
		case k == rstStream && len(h) > spdyHeader:
			return append(h[spdyHeader:spdyHeader+4], 1, 0, 0, 0), nil
		case h[0]&0x80 != 0 && k != settings && k != ping && k != goAway && k != windowUpdate:
			return nil, errControlFrame
		}
		return h, nil
	})
}

// length returns the number of bytes after the header of a frame.
func length(h []byte) uint32 { return binary.BigEndian.Uint32(h[4:]) & 0xffffff }

// smallFrames is spdyFrames. need returns the number of bytes that check receives, the header and what
// follows it, if the frame is not one of data. check returns the bytes to pass on in their place.
func smallFrames(r io.Reader, need func(h []byte) int, check func(h []byte) ([]byte, error)) io.Reader {
	var id [4]byte
	var flags byte
	rest := uint32(0) // of the present frame of data
	part := func() ([]byte, uint64, error) {
		size, f := rest, flags
		if size > maxData {
			size, f = maxData, 0 // the flag is that of the last part
		}
		rest -= size
		return append(id[:], f, byte(size>>16), byte(size>>8), byte(size)), uint64(size), nil
	}
	return &frames{r: r, need: need, begin: func(h []byte) ([]byte, uint64, error) {
		switch {
		case h == nil && rest > 0:
			return part()
		case h == nil:
			return nil, 0, nil
		}
		size := length(h)
		if h[0]&0x80 != 0 {
			if size > maxControl {
				return nil, 0, errControlFrame
			}
			out, err := check(append([]byte(nil), h...))
			return out, uint64(size) - uint64(len(h)-spdyHeader), err
		}
		copy(id[:], h)
		flags, rest = h[4], size
		return part()
	}}
}

// spdyConn is a connection whose frames have a bound. It can be closed more than once, and its
// peer may have closed it before: after an error of Close a goroutine of the library waits for a second.
type spdyConn struct {
	net.Conn
	frames io.Reader
}

func newSPDYConn(c net.Conn, frames func(io.Reader) io.Reader) spdyConn {
	return spdyConn{c, frames(c)}
}

// Read implements [net.Conn].
func (c spdyConn) Read(p []byte) (int, error) { return c.frames.Read(p) }

// Close implements [net.Conn]. It returns no error.
func (c spdyConn) Close() error {
	_ = c.Conn.Close()
	return nil
}

// largeFrames is the size of the large frames that are in memory. It is safe for concurrent use.
type largeFrames struct{ size atomic.Int64 }

// frameBudget is the part of largeFrames that one session uses. It is safe for concurrent use.
type frameBudget struct {
	all *largeFrames

	mu     sync.Mutex
	used   int64 // bytes
	closed bool
}

// resize makes n bytes the size that the session uses. It returns false if there is no room, or after close.
func (b *frameBudget) resize(n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all.size.Add(-b.used)
	b.used = 0
	if n == 0 || b.closed {
		return n == 0
	}
	if b.all.size.Add(n) > maxLarge {
		b.all.size.Add(-n)
		return false
	}
	b.used = n
	return true
}

// close releases what the session uses, and refuses more.
func (b *frameBudget) close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.resize(0)
}

var errFrame = errors.New("a frame of a WebSocket has no valid length")

// webSocketFrames returns a reader of the frames of a WebSocket (RFC 6455, 5.2) that refuses large ones
// while there is no room for them. The frame before is dispatched when the next one begins.
func webSocketFrames(r io.Reader, b *frameBudget) io.Reader {
	lengthOf := func(header []byte) uint64 {
		switch size := header[1] & 0x7f; size {
		case 126:
			return uint64(binary.BigEndian.Uint16(header[2:]))
		case 127:
			return binary.BigEndian.Uint64(header[2:])
		default:
			return uint64(size)
		}
	}
	return &frames{r: r, need: func(header []byte) int {
		if len(header) < 2 {
			return 2
		}
		n := 2
		switch header[1] & 0x7f {
		case 126:
			n = 4
		case 127:
			n = 10
		}
		if header[1]&0x80 != 0 {
			n += 4 // the mask
		}
		return n
	}, begin: func(header []byte) ([]byte, uint64, error) {
		if header == nil {
			return nil, 0, nil
		}
		size := lengthOf(header)
		if size > 1<<62 {
			return nil, 0, errFrame
		}
		large := int64(size)
		if large <= smallFrame {
			large = 0
		}
		if !b.resize(large) {
			return nil, 0, errLargeFrames
		}
		return append([]byte(nil), header...), size, nil
	}}
}
