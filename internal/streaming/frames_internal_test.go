package streaming

import (
	"bytes"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// spdyData returns a data frame.
func spdyData(id uint32, flags byte, data []byte) []byte {
	frame := binary.BigEndian.AppendUint32(nil, id)
	return append(binary.BigEndian.AppendUint32(frame, uint32(flags)<<24|uint32(len(data))), data...)
}

// spdyControl returns a control frame.
func spdyControl(kind uint16, data []byte) []byte {
	frame := binary.BigEndian.AppendUint16([]byte{0x80, 3}, kind)
	return append(binary.BigEndian.AppendUint32(frame, uint32(len(data))), data...)
}

func random(n int) []byte {
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(rand.N(256))
	}
	return data
}

// The library gets the same bytes of each stream in frames that are small, with the end at the end, and
// the same control frames.
func TestSPDYFrames(t *testing.T) {
	t.Parallel()
	var in bytes.Buffer
	sent := map[uint32][]byte{}
	var controls [][]byte
	for i := range 200 {
		id := uint32(1 + 2*rand.N(3))
		data := random(rand.N(5 * maxData))
		if i%3 == 0 {
			data = data[:rand.N(min(len(data), 10)+1)]
		}
		sent[id] = append(sent[id], data...)
		in.Write(spdyData(id, 0, data))
		if i%5 == 0 {
			controls = append(controls, spdyControl(uint16(i), random(rand.N(maxControl+1))))
			in.Write(controls[len(controls)-1])
		}
	}
	last := random(3 * maxData)
	in.Write(spdyData(9, 1, last))
	sent[9] = last
	for name, wrap := range map[string]func(io.Reader) io.Reader{"": func(r io.Reader) io.Reader { return r },
		"byte by byte": iotest.OneByteReader, "in parts": iotest.HalfReader} {
		r := wrap(spdyFrames(wrap(bytes.NewReader(in.Bytes()))))
		got, ends := map[uint32][]byte{}, 0
		var gotControls [][]byte
		for {
			header := make([]byte, 8)
			if _, err := io.ReadFull(r, header); err == io.EOF {
				break
			} else {
				require.NoError(t, err, name)
			}
			size := binary.BigEndian.Uint32(header[4:]) & 0xffffff
			data := make([]byte, size)
			_, err := io.ReadFull(r, data)
			require.NoError(t, err, name)
			if header[0]&0x80 != 0 {
				gotControls = append(gotControls, append(header, data...))
				continue
			}
			assert.LessOrEqual(t, size, uint32(maxData))
			id := binary.BigEndian.Uint32(header)
			assert.Zero(t, ends, "nothing follows the end")
			ends += int(header[4])
			got[id] = append(got[id], data...)
		}
		assert.Equal(t, 1, ends, name)
		assert.Equal(t, controls, gotControls, name)
		for id := range sent {
			assert.True(t, bytes.Equal(sent[id], got[id]), "%s: stream %d", name, id)
		}
	}
}

// gone is a connection that is closed.
type gone struct{ net.Conn }

func (gone) Close() error                     { return net.ErrClosed }
func (gone) SetReadDeadline(time.Time) error  { return net.ErrClosed }
func (gone) SetWriteDeadline(time.Time) error { return net.ErrClosed }

// The goroutine of the library that closes a connection ends with it.
func TestCloseOfAClosedConnection(t *testing.T) {
	t.Parallel()
	require.NoError(t, newSPDYConn(gone{}, spdyFrames).Close())
	require.NoError(t, (&clientConn{Conn: gone{}, s: &Session{server: New(Options{})}}).Close())
}

// Headers of a few kilobytes are megabytes when they are decompressed, those of 16 MiB gigabytes.
func TestLargeControlFrames(t *testing.T) {
	t.Parallel()
	_, err := io.Copy(io.Discard, spdyFrames(bytes.NewReader(spdyControl(1, make([]byte, maxControl)))))
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, spdyFrames(bytes.NewReader(spdyControl(1, make([]byte, maxControl+1)))))
	require.ErrorIs(t, err, errControlFrame)
}

// webSocketFrame returns the beginning of a frame of a client.
func webSocketFrame(size int) []byte {
	frame := binary.BigEndian.AppendUint64([]byte{0x82, 0x80 | 127}, uint64(size))
	return append(frame, 1, 2, 3, 4)
}

// The large frames of all sessions together are bounded, also while they are not complete. Small ones are not.
func TestLargeWebSocketFrames(t *testing.T) {
	t.Parallel()
	var all largeFrames
	begin := func(b *frameBudget, size int) error {
		r := webSocketFrames(bytes.NewReader(append(webSocketFrame(size), 'x')), b)
		_, err := io.ReadFull(r, make([]byte, len(webSocketFrame(size))+1))
		return err
	}
	var budgets []*frameBudget
	for range 3 {
		b := &frameBudget{all: &all}
		budgets = append(budgets, b)
		if len(budgets) < 3 {
			require.NoError(t, begin(b, maxLarge/2))
		} else {
			require.ErrorIs(t, begin(b, maxLarge/2), errLargeFrames)
			require.NoError(t, begin(b, smallFrame))
		}
	}
	require.NoError(t, begin(budgets[0], maxLarge/2), "the frame before is dispatched")
	budgets[0].close()
	require.NoError(t, begin(budgets[2], maxLarge/2))
	require.ErrorIs(t, begin(budgets[0], maxLarge/4), errLargeFrames, "its session has ended")
	for _, b := range budgets {
		b.close()
		b.close()
	}
	assert.Zero(t, all.size.Load())
	b := &frameBudget{all: &all}
	for _, size := range []int{maxLarge + 1, 1 << 62, -1} {
		require.Error(t, begin(b, size))
	}
	assert.Zero(t, all.size.Load())

	var in, want bytes.Buffer
	for _, frame := range [][]byte{{0x82, 0}, {0x82, 5, 1, 2, 3, 4, 5}, append([]byte{0x82, 0x80 | 3, 9, 9, 9, 9}, 1, 2,
		3), append([]byte{0x82, 126, 1, 0}, make([]byte, 256)...), {0x88, 0}} {
		in.Write(frame)
		want.Write(frame)
	}
	got, err := io.ReadAll(webSocketFrames(iotest.OneByteReader(&in), b))
	require.NoError(t, err)
	assert.Equal(t, want.Bytes(), got, "nothing is changed")
}
