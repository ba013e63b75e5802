package history

import (
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// The maximum lengths of the texts of a record in bytes: of a message and of an error, and
// of everything else. A history has room for more than one entry with texts as long.
const (
	maxText = 256
	maxName = 64
)

// The words that are encoded as one byte: their index plus one. A word that is not here is
// encoded as 0 and the word itself. The order is kept, because files have the indices.
var (
	stages = [...]runtime.RecordStage{runtime.StageSeen, runtime.StageDecided, runtime.StageDone}
	kinds  = [...]runtime.RecordKind{
		runtime.KindSandboxReady, runtime.KindSandboxDied, runtime.KindContainerRunning, runtime.KindContainerExited,
		runtime.KindContainerUnknown, runtime.KindAgentStarted, runtime.KindAdmit, runtime.KindRefuse,
		runtime.KindUpdate,
		runtime.KindRecreate, runtime.KindProbe, runtime.KindBackOff, runtime.KindCreateSandbox, runtime.KindPullImage,
		runtime.KindStartContainer, runtime.KindStopContainer, runtime.KindPostStart, runtime.KindPreStop,
		runtime.KindSync,
		runtime.KindStopPod, runtime.KindRemovePod, runtime.KindFail, runtime.KindWait, runtime.KindWithdraw,
		runtime.KindReject, runtime.KindRemoveCgroup, runtime.KindResizeContainer,
		runtime.KindOOMKill, runtime.KindRotateLog,
	}
	sources = [...]runtime.RecordSource{"", runtime.SourceEvent, runtime.SourceRelist, runtime.SourceInspection,
		"file", "http", "api"}
)

// errShort means that the bytes are not an encoded entry.
var errShort = errors.New("the entry is damaged")

// header has the values of an entry that do not count in the comparison of repeats. Times
// are in microseconds.
type header struct {
	seq       uint64
	last      int64 // since the epoch of the ring, or since 1970 in a file
	span      uint64
	count     uint64
	attempt   uint32
	took      int64
	source    runtime.RecordSource
	exitedAgo int64 // last minus Record.At, plus one; 0: Record.At is zero. It is not negative.
}

func appendHeader(b []byte, h header) []byte {
	b = binary.AppendUvarint(b, h.seq)
	b = binary.AppendVarint(b, h.last)
	b = binary.AppendUvarint(b, h.span)
	b = binary.AppendUvarint(b, h.count)
	b = binary.AppendUvarint(b, uint64(h.attempt))
	b = binary.AppendVarint(b, h.took)
	b = appendWord(b, sources[:], h.source)
	return binary.AppendVarint(b, h.exitedAgo)
}

// appendKey appends the values of the record that count in the comparison of repeats. The
// pod is not among them.
func appendKey(b []byte, r *runtime.Record) []byte {
	b = appendWord(b, stages[:], r.Stage)
	b = appendWord(b, kinds[:], r.Kind)
	b = binary.AppendVarint(b, int64(r.ExitCode))
	b = appendText(b, r.Container, maxName)
	b = appendText(b, r.Reason, maxName)
	b = appendText(b, r.Message, maxText)
	return appendText(b, r.Error, maxText)
}

func appendWord[T ~string](b []byte, words []T, word T) []byte {
	if i := slices.Index(words, word); i >= 0 {
		return append(b, byte(i+1))
	}
	return appendText(append(b, 0), string(word), maxName)
}

func appendText(b []byte, s string, limit int) []byte {
	s = cut(s, limit)
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

// cut returns at most n bytes of s, with an ellipsis if it is longer. It does not cut a
// character.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	const ellipsis = "…"
	end := n - len(ellipsis)
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + ellipsis
}

// decoder reads what the functions above have written. After an error it returns zeros.
type decoder struct {
	b   []byte
	err error
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	return advance(d, v, n)
}

func (d *decoder) varint() int64 {
	v, n := binary.Varint(d.b)
	return advance(d, v, n)
}

func advance[T any](d *decoder, v T, n int) (zero T) {
	if n <= 0 {
		d.b, d.err = nil, errShort
		return zero
	}
	d.b = d.b[n:]
	return v
}

// bytes returns the next n bytes.
func (d *decoder) bytes(n uint64) []byte {
	if n > uint64(len(d.b)) {
		d.b, d.err = nil, errShort
		return nil
	}
	out := d.b[:n]
	d.b = d.b[n:]
	return out
}

// text returns a string of its own memory.
func (d *decoder) text() string {
	n := d.uvarint()
	if n > maxText {
		d.b, d.err = nil, errShort
	}
	return strings.Clone(string(d.bytes(n)))
}

func word[T ~string](d *decoder, words []T) T {
	i := d.bytes(1)
	switch {
	case len(i) == 0 || int(i[0]) > len(words):
		d.err = errShort
		return ""
	case i[0] == 0:
		return T(d.text())
	default:
		return words[i[0]-1]
	}
}

func (d *decoder) header() header {
	h := header{seq: d.uvarint(), last: d.varint(), span: d.uvarint(), count: d.uvarint()}
	h.attempt = uint32(d.uvarint())
	h.took = d.varint()
	h.source = word(d, sources[:])
	h.exitedAgo = d.varint()
	return h
}

// key reads a key into the record.
func (d *decoder) key(r *runtime.Record) {
	r.Stage, r.Kind = word(d, stages[:]), word(d, kinds[:])
	r.ExitCode = int32(d.varint())
	r.Container, r.Reason, r.Message, r.Error = d.text(), d.text(), d.text(), d.text()
}

// entry returns the entry with the values of the header and of the record. epoch is that
// of header.last.
func (h header) entry(epoch int64, r runtime.Record) Entry {
	last := epoch + h.last
	r.Attempt, r.Source, r.Duration = h.attempt, h.source, time.Duration(h.took)*time.Microsecond
	if h.exitedAgo != 0 {
		r.At = time.UnixMicro(last - h.exitedAgo + 1)
	}
	return Entry{Record: r, Seq: h.seq, Count: int(h.count), First: time.UnixMicro(last - int64(h.span)),
		Last: time.UnixMicro(last)}
}

// headerOf returns the header of an entry. It is the inverse of header.entry.
func headerOf(epoch int64, e *Entry) header {
	last := e.Last.UnixMicro()
	h := header{
		seq: e.Seq, last: last - epoch, span: uint64(max(0, last-e.First.UnixMicro())), count: uint64(e.Count),
		attempt: e.Attempt, source: e.Source, took: int64(e.Duration / time.Microsecond),
	}
	if !e.At.IsZero() {
		h.exitedAgo = max(last-e.At.UnixMicro()+1, 1)
	}
	return h
}
