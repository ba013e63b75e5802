package grpcprobe

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"net"
)

const (
	// maxFrames and maxBytes bound what is read in a check. Most answers take ten frames. maxBytes
	// has room for a header, a message and a trailer of maxMessage each.
	maxFrames = 256
	maxBytes  = 4 * maxMessage
	// headerLen is the length of the header of a frame (RFC 9113, section 4.1), maxPayload
	// that of the longest payload that net/http permits a server.
	headerLen  = 9
	maxPayload = 16 << 10
	// priorityFrame is a type of frames that a client ignores, as it does those above
	// continuationFrame, the last type of RFC 9113.
	priorityFrame     = 2
	continuationFrame = 9
)

// errFlood is the error of a connection beyond maxFrames or maxBytes.
var errFlood = errors.New("the server sends more frames than an answer takes")

// frames is a connection to a server of HTTP/2. net/http has no limit for frames that are not part
// of an answer. It replies to pings and settings, and logs each frame that it ignores. So a read
// fails after maxFrames or maxBytes, and frames that net/http ignores are not passed to it.
type frames struct {
	net.Conn
	in     *bufio.Reader
	header [headerLen]byte
	unread []byte // the rest of header
	left   int    // the rest of the payload, in bytes
	count  int
	bytes  int
}

func newFrames(conn net.Conn) *frames { return &frames{Conn: conn, in: bufio.NewReader(conn)} }

// Read implements [net.Conn]. It is called by one goroutine at a time, the read loop of net/http.
func (f *frames) Read(p []byte) (int, error) {
	for len(f.unread) == 0 && f.left == 0 {
		if err := f.next(); err != nil {
			return 0, err
		}
	}
	if len(f.unread) > 0 {
		n := copy(p, f.unread)
		f.unread = f.unread[n:]
		return n, nil
	}
	n, err := f.in.Read(p[:min(len(p), f.left)])
	f.left -= n
	return n, err
}

// next reads the header of a frame, and the frame as well if it is ignored.
func (f *frames) next() error {
	if _, err := io.ReadFull(f.in, f.header[:]); err != nil {
		return err
	}
	length, kind := int(binary.BigEndian.Uint32(f.header[:])>>8), f.header[3]
	f.count++
	f.bytes += headerLen + min(length, maxPayload) // net/http ends the connection at a longer one
	if f.count > maxFrames || f.bytes > maxBytes {
		return errFlood
	}
	if length <= maxPayload && (kind == priorityFrame || kind > continuationFrame) {
		_, err := f.in.Discard(length)
		return err
	}
	f.unread, f.left = f.header[:], length
	return nil
}
