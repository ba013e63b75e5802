package history

import (
	"bytes"
	"encoding/binary"
	"time"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// ring has the entries of one pod, encoded one after the other, the oldest first. It is a
// value without pointers in its entries, so the garbage collector of Go does not look into
// it. An entry is its size, the length of its key, the key, and the header.
type ring struct {
	buf []byte
	// epoch is what the times of the headers are relative to, in microseconds since 1970: the
	// time of the first record.
	epoch int64
	n     int
}

// limits bound a ring.
type limits struct{ entries, bytes int }

// span is an encoded entry: buf[from:to], with its key and its header.
type span struct {
	from, to int
	key      []byte
	header   []byte
}

// next returns the entry that begins at the offset, which must be less than len(r.buf).
func (r *ring) next(at int) span {
	size, n := binary.Uvarint(r.buf[at:])
	body := at + n
	key, k := binary.Uvarint(r.buf[body:])
	begin := body + k
	end := body + int(size)
	return span{from: at, to: end, key: r.buf[begin : begin+int(key)], header: r.buf[begin+int(key) : end]}
}

// add adds a record that comes now, in microseconds since 1970. The key is that of the
// record.
func (r *ring) add(l limits, key []byte, now int64, seq uint64, rec *runtime.Record) {
	if r.n == 0 {
		r.epoch, r.buf = now, r.buf[:0]
	}
	h := header{seq: seq, last: now - r.epoch, count: 1, attempt: rec.Attempt, source: rec.Source,
		took: int64(rec.Duration / time.Microsecond)}
	if !rec.At.IsZero() {
		h.exitedAgo = max(now-rec.At.UnixMicro()+1, 1)
	}
	if old, repeats := r.find(key); repeats {
		was := (&decoder{b: old.header}).header()
		h.count = was.count + 1
		h.span = uint64(max(0, h.last-was.last+int64(was.span)))
		r.remove(old)
	}
	r.append(l, key, h)
}

// restore adds an entry that was read from a file, or replaces the one that it was when it
// had a smaller count.
func (r *ring) restore(l limits, key []byte, e *Entry) {
	if r.n == 0 {
		r.epoch, r.buf = e.First.UnixMicro(), r.buf[:0]
	}
	h := headerOf(r.epoch, e)
	for at := 0; at < len(r.buf); {
		old := r.next(at)
		at = old.to
		if !bytes.Equal(old.key, key) {
			continue
		}
		if was := (&decoder{b: old.header}).header(); was.last-int64(was.span) == h.last-int64(h.span) &&
			was.count < h.count {
			r.remove(old)
			break
		}
	}
	r.append(l, key, h)
}

// find returns the entry of which a record with the key is a repeat: the newest one with
// the key, if it is the last entry, counts repeats already, or is not the only one.
func (r *ring) find(key []byte) (newest span, repeats bool) {
	found := 0
	for at := 0; at < len(r.buf); {
		e := r.next(at)
		at = e.to
		if bytes.Equal(e.key, key) {
			newest = e
			found++
		}
	}
	if found == 0 {
		return span{}, false
	}
	return newest, found > 1 || newest.to == len(r.buf) || (&decoder{b: newest.header}).header().count > 1
}

func (r *ring) remove(e span) {
	r.buf = append(r.buf[:e.from], r.buf[e.to:]...)
	r.n--
}

// append adds an entry, and drops the oldest ones if there is no room for it.
func (r *ring) append(l limits, key []byte, h header) {
	var scratch [maxHeader + 2*binary.MaxVarintLen32]byte
	tail := appendHeader(scratch[:0], h)
	body := uvarintLen(uint64(len(key))) + len(key) + len(tail)
	need := uvarintLen(uint64(body)) + body
	if need > l.bytes {
		return // only with limits that are smaller than one entry
	}
	drop := 0
	for ; drop < len(r.buf) && (r.n >= l.entries || len(r.buf)-drop+need > l.bytes); r.n-- {
		drop = r.next(drop).to
	}
	if drop > 0 {
		r.buf = r.buf[:copy(r.buf, r.buf[drop:])]
	}
	r.grow(need, l.bytes)
	r.buf = binary.AppendUvarint(r.buf, uint64(body))
	r.buf = binary.AppendUvarint(r.buf, uint64(len(key)))
	r.buf = append(r.buf, key...)
	r.buf = append(r.buf, tail...)
	r.n++
}

// grow makes room for n bytes. The capacity is a power of two, or the limit.
func (r *ring) grow(n, limit int) {
	if cap(r.buf)-len(r.buf) >= n {
		return
	}
	size := max(cap(r.buf), 256)
	for size < len(r.buf)+n {
		size *= 2
	}
	r.buf = append(make([]byte, 0, min(size, limit)), r.buf...)
}

// dropUntil drops the entries whose last record came before the time.
func (r *ring) dropUntil(micros int64) {
	drop := 0
	for drop < len(r.buf) {
		e := r.next(drop)
		if r.epoch+(&decoder{b: e.header}).header().last >= micros {
			break
		}
		drop = e.to
		r.n--
	}
	if drop > 0 {
		r.buf = r.buf[:copy(r.buf, r.buf[drop:])]
	}
}

// appendEntries appends the entries whose number is greater than after.
func (r *ring) appendEntries(to []Entry, ref runtime.PodRef, after uint64) []Entry {
	for at := 0; at < len(r.buf); {
		s := r.next(at)
		at = s.to
		h := (&decoder{b: s.header}).header()
		if h.seq <= after {
			continue
		}
		rec := runtime.Record{Pod: ref}
		(&decoder{b: s.key}).key(&rec)
		to = append(to, h.entry(r.epoch, rec))
	}
	return to
}

// maxHeader is the maximum length of an encoded header.
const maxHeader = 7*binary.MaxVarintLen64 + maxName + 2

func uvarintLen(v uint64) int {
	n := 1
	for v >= 1<<7 {
		v >>= 7
		n++
	}
	return n
}
