package streaming

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/streaming/pkg/httpstream"
)

// stream is a stream of SPDY without a connection. closed is called when it is closed first.
type stream struct {
	io.Reader
	header http.Header
	sent   bytes.Buffer
	closed func()
}

// connection is a connection that is open.
type connection struct{ httpstream.Connection }

func (connection) CloseChan() <-chan bool             { return nil }
func (connection) RemoveStreams(...httpstream.Stream) {}

func newStream(kind, id, port string) *stream {
	s := &stream{Reader: &bytes.Buffer{}, header: http.Header{}}
	s.header.Set(streamType, kind)
	s.header.Set(requestIDHeader, id)
	s.header.Set(portHeader, port)
	return s
}

func (s *stream) Write(b []byte) (int, error) { return s.sent.Write(b) }
func (s *stream) Headers() http.Header        { return s.header }
func (*stream) Reset() error                  { return nil }
func (*stream) Identifier() uint32            { return 0 }

func (s *stream) Close() error {
	if closed := s.closed; closed != nil {
		s.closed = nil
		closed()
	}
	return nil
}

// newForwarder returns a forwarder of a session, which stop ends. Its connections stay open, and their ports
// are sent to opened.
func newForwarder(t *testing.T, maximum int) (f *forwarder, opened <-chan int32, stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	ports := make(chan int32, 1)
	connect := func(ctx context.Context, port int32, _ io.ReadWriteCloser) error {
		ports <- port
		<-ctx.Done()
		return ctx.Err()
	}
	server := New(Options{MaxForwards: maximum, SetupTimeout: time.Hour})
	f = &forwarder{s: &Session{server: server, ctx: ctx, cancel: cancel}, connect: connect,
		upgraded: make(chan struct{}), pairs: map[string]*pair{}}
	f.conn = connection{}
	close(f.upgraded)
	return f, ports, func() {
		cancel()
		f.running.Wait()
		for _, p := range f.pairs {
			p.late.Stop()
		}
	}
}

// A stream that comes while its connection is given up belongs to a new one. It does not stay
// without a connection, where nothing would end it.
func TestStreamOfAConnectionThatIsGivenUp(t *testing.T) {
	t.Parallel()
	f, _, stop := newForwarder(t, 10)
	defer stop()
	late := newStream(typeData, "1", "7")
	failed := newStream(typeError, "1", "7")
	failed.closed = func() { assert.NoError(t, f.accept(late, nil)) }
	replied := make(chan struct{})
	close(replied)
	require.NoError(t, f.accept(failed, replied))
	first := f.pairs["1"]
	first.late.Stop()
	f.expire("1", first)
	assert.Equal(t, "timed out waiting for streams", failed.sent.String())
	require.NotNil(t, f.pairs["1"])
	assert.NotSame(t, first, f.pairs["1"])
	assert.Same(t, late, f.pairs["1"].data)
}

// waitingReader waits in each Read, and counts those that do.
type waitingReader struct {
	reads atomic.Int32
	end   chan struct{}
}

func (r *waitingReader) Read([]byte) (int, error) {
	r.reads.Add(1)
	defer r.reads.Add(-1)
	<-r.end
	return 0, io.EOF
}

// A runtime that still reads from a connection that it has left does not do so beside the forwarder: a
// stream of SPDY has one reader.
func TestOneReaderOfAConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _, stop := newForwarder(t, 1)
		leave := make(chan struct{})
		f.connect = func(_ context.Context, _ int32, conn io.ReadWriteCloser) error {
			go func() { _, _ = io.Copy(io.Discard, conn) }()
			<-leave
			return nil
		}
		data, failed := newStream(typeData, "1", "7"), newStream(typeError, "1", "7")
		reader := &waitingReader{end: make(chan struct{})}
		data.Reader = reader
		replied := make(chan struct{})
		close(replied)
		require.NoError(t, f.accept(data, replied))
		require.NoError(t, f.accept(failed, replied))
		synctest.Wait() // the runtime reads
		close(leave)
		synctest.Wait()
		assert.EqualValues(t, 1, reader.reads.Load())
		close(reader.end)
		stop()
	})
}

// A client chooses the headers of its streams, and their order. A connection has two streams and the
// port of that of its data, and there are never more than the maximum.
func FuzzForwardHeaders(f *testing.F) {
	f.Add("error 1 80\ndata 1 80\nerror 2 0\ndata 2 65536")
	f.Add("data 1 1\ndata 1 2\nerror 1 3\nerror 1 3\ndata 1 3")
	f.Add("data 1 +7\nerror  7\nother 1 7\ndata 1 7\ndata 2 7\ndata 3 7\nerror 3 8")
	f.Fuzz(func(t *testing.T, lines string) {
		const maximum = 2
		fw, opened, stop := newForwarder(t, maximum)
		defer stop()
		type connection struct{ data, err string } // ports
		open := map[string]*connection{}
		for line := range bytes.Lines([]byte(lines)) {
			words := bytes.SplitN(bytes.TrimSuffix(line, []byte("\n")), []byte(" "), 3)
			for len(words) < 3 {
				words = append(words, nil)
			}
			kind, id, port := string(words[0]), string(words[1]), string(words[2])
			n, err := strconv.Atoi(port)
			valid := err == nil && n > 0 && n < 1<<16 && port[0] != '+' && (kind == "data" || kind == "error") &&
				id != "" && len(id) <= maxRequestID
			c := open[id]
			if c == nil {
				c = &connection{}
			}
			place := &c.data
			if kind == "error" {
				place = &c.err
			}
			want := valid && *place == "" && (open[id] != nil || len(open) < maximum)
			replied := make(chan struct{})
			close(replied)
			s := newStream(kind, id, port)
			s.header.Set("Other", "more")
			err = fw.accept(s, replied)
			require.Equal(t, want, err == nil, "%q: %v", line, err)
			require.Less(t, len(fmt.Sprint(err)), 2000, "it is logged")
			if valid {
				require.Empty(t, s.header, "they stay with the stream")
			}
			if !want {
				continue
			}
			open[id], *place = c, port
			if c.data != "" && c.err != "" {
				n, _ := strconv.Atoi(c.data)
				require.EqualValues(t, n, <-opened)
			}
		}
		require.LessOrEqual(t, len(fw.pairs), maximum)
	})
}
