package supervise

import (
	"bytes"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// long is a wait that no test reaches.
const long = time.Hour

// pipeOf returns a pipe whose write end stays open, as that of a process that was left behind.
func pipeOf(t *testing.T, content string) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	t.Cleanup(func() { CloseFiles([]*os.File{r, w}) })
	_, err = w.WriteString(content)
	require.NoError(t, err)
	return r, w
}

// What was written before the end is read, whenever the reader comes, and whoever has the pipe open.
func TestOutputAfterItsDeadline(t *testing.T) {
	full := strings.Repeat("x", 64<<10)
	for name, content := range map[string]string{"nothing": "", "a line": "a line\n", "a full pipe": full} {
		t.Run(name, func(t *testing.T) {
			r, _ := pipeOf(t, content)
			o := NewOutput(r, -1) // the deadline has passed when End returns
			o.End()
			o.End()
			got, err := io.ReadAll(o)
			require.NoError(t, err)
			assert.Equal(t, len(content), len(got))
			assert.Equal(t, content, string(got))
		})
	}

	t.Run("its log", func(t *testing.T) {
		r, _ := pipeOf(t, strings.Repeat("0123456789\n", 5000)+"end")
		s := &supervisor{}
		s.log.path = t.TempDir() + "/log"
		require.NoError(t, s.log.open())
		s.log.mu.Lock() // as if the disk were slow
		s.read("stdout", r, -1)
		s.endOutput()
		s.log.mu.Unlock()
		s.streams.Wait()
		s.log.close()
		data, err := os.ReadFile(s.log.path)
		require.NoError(t, err)
		assert.Equal(t, 5001, bytes.Count(data, []byte(" stdout F ")))
		assert.True(t, bytes.HasSuffix(data, []byte(" F end\n")))
	})

	t.Run("a terminal", func(t *testing.T) {
		master, slave, err := OpenTTY()
		require.NoError(t, err)
		defer CloseFiles([]*os.File{master, slave})
		_, err = slave.WriteString("on the screen")
		require.NoError(t, err)
		o := NewOutput(master, -1)
		o.End()
		got, err := io.ReadAll(o)
		require.NoError(t, err)
		assert.Equal(t, "on the screen", string(got))
	})
}

// The reader is slow, and what a filter has still to write comes after the end.
func TestOutputOfAFilter(t *testing.T) {
	full := strings.Repeat("x", 64<<10)
	r, w := pipeOf(t, full)
	o := NewOutput(r, long)
	o.End()
	written := make(chan error, 1)
	go func() {
		_, err := w.WriteString("the rest")
		_ = w.Close()
		written <- err
	}()
	got, err := io.ReadAll(o)
	require.NoError(t, err)
	require.NoError(t, <-written)
	assert.Equal(t, full+"the rest", string(got))
}

// A read that waits when the process ends also ends, and has what came last.
func TestOutputWhileAReadWaits(t *testing.T) {
	for _, content := range []string{"", "late"} {
		r, w := pipeOf(t, "first")
		o := NewOutput(r, time.Millisecond)
		got := make(chan string)
		go func() {
			b := make([]byte, 5)
			_, err := io.ReadFull(o, b)
			assert.NoError(t, err)
			got <- string(b)
			data, err := io.ReadAll(o) // it waits, since nothing is written
			assert.NoError(t, err)
			got <- string(data)
		}()
		assert.Equal(t, "first", <-got)
		_, err := w.WriteString(content)
		require.NoError(t, err)
		o.End()
		assert.Equal(t, content, <-got)
	}
}

// A process that was left behind and writes a little between two reads of a slow reader does not hold
// the end.
func TestOutputThatTrickles(t *testing.T) {
	r, w := pipeOf(t, "content")
	o := NewOutput(r, -1)
	o.End()
	b, reads, got := make([]byte, 1), 0, 0
	for ; reads < 4*maxLateReads; reads++ {
		_, err := w.WriteString("x")
		require.NoError(t, err)
		n, err := o.Read(b)
		got += n
		if err != nil {
			require.ErrorIs(t, err, io.EOF)
			break
		}
	}
	assert.GreaterOrEqual(t, got, len("content"))
	assert.LessOrEqual(t, reads, len("content")+1+maxLateReads, "the first byte is there before the first read")
}

// A process that was left behind and writes without an end does not hold the end.
func TestEndlessOutput(t *testing.T) {
	r, w := pipeOf(t, "")
	size, err := unix.FcntlInt(w.Fd(), unix.F_GETPIPE_SZ, 0)
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for block := make([]byte, 64<<10); ; {
			if _, err := w.Write(block); err != nil {
				return
			}
		}
	}()
	o := NewOutput(r, time.Nanosecond)
	b := make([]byte, 64<<10)
	_, err = o.Read(b)
	require.NoError(t, err)
	o.End()
	n, err := io.Copy(io.Discard, o)
	require.NoError(t, err)
	assert.LessOrEqual(t, n, int64(size+maxLate+len(b)))
	require.NoError(t, r.Close())
	<-done
}

func TestOutputThatIsClosed(t *testing.T) {
	for _, ended := range []bool{false, true} {
		r, _ := pipeOf(t, "content")
		o := NewOutput(r, long)
		if ended {
			o.End()
		}
		require.NoError(t, r.Close())
		_, err := o.Read(make([]byte, 1))
		assert.ErrorContains(t, err, "closed")
	}
}
