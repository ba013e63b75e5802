package history

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/internal/safefile"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// A file is a magic line and frames. A frame is its length and a checksum, 4 bytes each,
// and an entry with its pod. Frames are appended. If the end is cut off, what is before it
// is used. A file with many entries that are dropped or repeated is written anew.
const (
	magic = "kubeletkit history 1\n"
	// writeDelay is the time during which new entries are collected before they are written.
	writeDelay = time.Second
	// minRewrite is the size in bytes up to which a file is not written anew.
	minRewrite = 64 << 10
	// maxFile is the largest file that is read.
	maxFile = 256 << 20
)

// errNoFile means that the file is not one of a Memory.
var errNoFile = errors.New("not a file of this version")

// appendFrame appends an entry with its pod.
func appendFrame(b []byte, e *Entry) []byte {
	at := len(b)
	b = append(b, 0, 0, 0, 0, 0, 0, 0, 0)
	for _, name := range [...]string{string(e.Pod.UID), e.Pod.Namespace, e.Pod.Name} {
		b = appendText(b, name, maxText)
	}
	b = appendHeader(b, headerOf(0, e))
	b = appendKey(b, &e.Record)
	body := b[at+8:]
	binary.LittleEndian.PutUint32(b[at:], uint32(len(body)))
	binary.LittleEndian.PutUint32(b[at+4:], crc32.ChecksumIEEE(body))
	return b
}

// nextFrame returns the first entry and the rest. The error is [io.EOF] at the end, and
// errShort if there is no valid frame.
func nextFrame(b []byte) (e Entry, rest []byte, err error) {
	if len(b) == 0 {
		return Entry{}, nil, io.EOF
	}
	if len(b) < 8 {
		return Entry{}, nil, errShort
	}
	size, sum := binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:])
	b = b[8:]
	if uint64(size) > uint64(len(b)) || crc32.ChecksumIEEE(b[:size]) != sum {
		return Entry{}, nil, errShort
	}
	d := &decoder{b: b[:size]}
	var r runtime.Record
	r.Pod = runtime.PodRef{UID: types.UID(d.text()), Namespace: d.text(), Name: d.text()}
	h := d.header()
	d.key(&r)
	if d.err != nil || len(d.b) > 0 || r.Pod.UID == "" || h.count == 0 || h.exitedAgo < 0 {
		return Entry{}, nil, errShort
	}
	return h.entry(0, r), b[size:], nil
}

// Load implements [Store]. It reads the file, if there is one. The pods count as gone
// from then on until something is recorded of them.
func (m *Memory) Load(context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.loaded {
		return fmt.Errorf("history: loading: %w", runtime.ErrAlreadyRunning)
	}
	m.loaded = true
	if m.opts.File == "" {
		return nil
	}
	data, err := safefile.ReadFile(m.opts.File, maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("history: reading what an earlier agent has kept; it is lost: %w", err)
	}
	data, ok := bytes.CutPrefix(data, []byte(magic))
	if !ok {
		return fmt.Errorf("history: %s: %w; it is written anew", m.opts.File, errNoFile)
	}
	for {
		var e Entry
		if e, data, err = nextFrame(data); err != nil {
			break
		}
		m.restore(&e)
	}
	m.loadedAt = time.Now()
	for _, p := range m.pods {
		p.restored = true
	}
	m.sweep(m.loadedAt)
	if !errors.Is(err, io.EOF) {
		return fmt.Errorf("history: %s: %w; what follows it is lost", m.opts.File, err)
	}
	return nil
}

// restore adds an entry of the file. The lock is held.
func (m *Memory) restore(e *Entry) {
	p := m.pods[e.Pod.UID]
	if p == nil {
		p = m.addPod(e.Pod)
	}
	m.seq++
	e.Seq, p.last = m.seq, m.seq
	p.ring.restore(m.limits, appendKey(m.key[:0], &e.Record), e)
	if !aside(e.Kind) {
		m.setGone(p, e.Kind == runtime.KindRemovePod, e.Last)
	}
}

// Run implements [Store]. If the file cannot be written, Run logs that and tries again
// after a back-off, and with the next entry.
func (m *Memory) Run(ctx context.Context) error {
	m.mu.Lock()
	if m.ran {
		m.mu.Unlock()
		return fmt.Errorf("history: %w", runtime.ErrAlreadyRunning)
	}
	m.ran = true
	m.mu.Unlock()
	if m.opts.File == "" {
		<-ctx.Done()
		return nil
	}
	// All that was loaded is written too: the first write is a new file.
	w := &writer{path: m.opts.File}
	news := m.watch("", 0)
	defer m.unwatch(news)
	news.wake.Notify()
	flow.Saver{
		Dirty: news.wake, Wait: writeDelay, Save: func() error { return m.write(w, news) },
		Retry: flow.Backoff{Min: time.Second, Max: time.Minute}.After,
		Log:   m.opts.Logger.WithValues("file", m.opts.File), Saved: "The history is written again",
		Failing: "The history cannot be written; it does not survive the agent until that succeeds",
	}.Run(ctx)
	return nil
}

// write writes the new entries, or all if the file is to be written anew.
func (m *Memory) write(w *writer, news *watcher) error {
	entries := m.take(news)
	if len(entries) == 0 && w.size > 0 {
		return nil
	}
	var b []byte
	for i := range entries {
		b = appendFrame(b, &entries[i])
	}
	if w.size > 0 && w.size+int64(len(b)) <= w.limit {
		err := w.append(b)
		if err == nil {
			return nil
		}
	}
	all := m.watch("", 0)
	entries = m.take(all)
	m.unwatch(all)
	return w.rewrite(entries)
}

// writer is the file. size is 0 if it must be written anew.
type writer struct {
	path        string
	size, limit int64
}

// append writes frames at the end.
func (w *writer) append(frames []byte) (err error) {
	f, err := os.OpenFile(w.path, os.O_WRONLY|os.O_APPEND, 0)
	if err == nil {
		_, err = f.Write(frames)
		err = errors.Join(err, f.Close())
	}
	w.size += int64(len(frames))
	if err != nil {
		w.size = 0
	}
	return err
}

// rewrite replaces the file by one with the entries. It is not synced: after a power loss,
// a history that is damaged is better than a write that waits for the disk.
func (w *writer) rewrite(entries []Entry) error {
	w.size = 0
	size := int64(len(magic))
	err := safefile.WriteFrom(w.path, func(out *bufio.Writer) {
		_, _ = out.WriteString(magic)
		var frame []byte
		for i := range entries {
			frame = appendFrame(frame[:0], &entries[i])
			n, _ := out.Write(frame)
			size += int64(n)
		}
	})
	if err != nil {
		return err
	}
	w.size, w.limit = size, max(minRewrite, 2*size)
	return nil
}
