package history

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// model is a Memory without an encoding. Which entries it drops for want of memory it takes
// from the Memory, and checks that the Memory had to drop them.
type model struct {
	pods map[types.UID][]Entry
	gone map[types.UID]time.Time
	seq  uint64
}

func equalButTimes(a, b runtime.Record) bool {
	a.Source, a.Attempt, a.Duration, a.At, b.Source, b.Attempt, b.Duration, b.At = "", 0, 0, time.Time{},
		"", 0, 0, time.Time{}
	return a == b
}

func (m *model) record(r runtime.Record) {
	now := time.UnixMicro(time.Now().UnixMicro())
	entries := m.pods[r.Pod.UID]
	m.seq++
	next := Entry{Record: r, Seq: m.seq, Count: 1, First: now, Last: now}
	var same []int
	for i := range entries {
		if equalButTimes(entries[i].Record, r) {
			same = append(same, i)
		}
	}
	if len(same) > 0 {
		at := same[len(same)-1]
		if old := entries[at]; len(same) > 1 || at == len(entries)-1 || old.Count > 1 {
			next.Count, next.First = old.Count+1, old.First
			entries = slices.Delete(entries, at, at+1)
		}
	}
	m.pods[r.Pod.UID] = append(entries, next)
	delete(m.gone, r.Pod.UID)
	if r.Kind == runtime.KindRemovePod {
		m.gone[r.Pod.UID] = now
	}
}

// entriesOf returns the entries of the model, of which the first were dropped as in got.
func (m *model) entriesOf(t *rapid.T, uid types.UID, got []Entry, l limits) []Entry {
	want := m.pods[uid]
	if drop := len(want) - len(got); drop > 0 {
		size := 0
		for _, e := range want[drop-1:] {
			size += len(appendKey(nil, &e.Record)) + 40
		}
		require.Truef(t, len(want) > l.entries || size > l.bytes,
			"%d entries of at most %d bytes were kept, and %d dropped", len(got), size, drop)
		want = want[drop:]
		m.pods[uid] = want
	}
	return want
}

var texts = []string{"", "Error", "OOMKilled", "a container that exits", strings.Repeat("long ", 40)}

func drawRecord(t *rapid.T) runtime.Record {
	uid := types.UID(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "uid"))
	text := rapid.SampledFrom(texts)
	r := runtime.Record{
		Pod:   runtime.PodRef{UID: uid, Namespace: "default", Name: "pod-" + string(uid)},
		Stage: rapid.SampledFrom(append(stages[:], "Own")).Draw(t, "stage"),
		// TestRecordsAside has the kinds that are left out.
		Kind: rapid.SampledFrom(append(slices.DeleteFunc(slices.Clone(kinds[:]), aside), "OwnKind")).Draw(t,
			"kind"),
		Source:    rapid.SampledFrom(append(sources[:], "mqtt")).Draw(t, "source"),
		Container: rapid.SampledFrom([]string{"", "main", "init"}).Draw(t, "container"),
		Attempt:   rapid.Uint32Range(0, 300).Draw(t, "attempt"),
		ExitCode:  rapid.Int32Range(-1, 2).Draw(t, "exit code"),
		Reason:    cut(text.Draw(t, "reason"), maxName), Message: text.Draw(t, "message"), Error: text.Draw(t, "error"),
		Duration: rapid.SampledFrom([]time.Duration{0, time.Second, 40 * time.Hour, time.Microsecond}).Draw(t,
			"duration"),
	}
	if rapid.Bool().Draw(t, "has At") {
		r.At = time.UnixMicro(time.Now().UnixMicro() - rapid.Int64Range(0, 1e9).Draw(t, "ago"))
	}
	return r
}

// A Memory has the entries of the model, before and after it is restored from its file.
func TestModel(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		rapid.Check(struct{ testing.TB }{t}, func(t *rapid.T) { // a bubble has no Deadline
			runs++
			runModel(t, fmt.Sprintf("%s/%d", dir, runs))
		})
	})
}

func runModel(t *rapid.T, file string) {
	opts := Options{MaxBytes: rapid.IntRange(minBytes, 4000).Draw(t, "bytes"), MaxEntries: rapid.IntRange(1, 40).Draw(t,
		"entries"), File: file}
	s, err := New(opts)
	require.NoError(t, err)
	m := model{pods: map[types.UID][]Entry{}, gone: map[types.UID]time.Time{}}
	w := s.watch("", 0)
	var last runtime.Record
	check := func() {
		for _, uid := range []types.UID{"a", "b", "c"} {
			got := s.Entries(uid)
			want := m.entriesOf(t, uid, got, s.limits)
			require.Equal(t, len(want), len(got))
			for i := range want {
				require.True(t, want[i].First.Equal(got[i].First) && want[i].Last.Equal(got[i].Last), "%v %v", want[i],
					got[i])
				require.True(t, want[i].At.Equal(got[i].At))
				want[i].First, want[i].Last, want[i].At = got[i].First, got[i].Last, got[i].At
			}
			require.Equal(t, append([]Entry{}, want...), append([]Entry{}, got...))
			if p := s.pods[uid]; p != nil {
				require.LessOrEqual(t, cap(p.ring.buf), s.limits.bytes)
				require.Equal(t, m.gone[uid].IsZero(), p.goneAt.IsZero())
			}
		}
	}
	t.Repeat(map[string]func(*rapid.T){
		"record": func(t *rapid.T) {
			last = drawRecord(t)
			s.Record(last)
			m.record(last)
		},
		"repeat": func(*rapid.T) {
			if last.Kind != "" {
				s.Record(last)
				m.record(last)
			}
		},
		"wait": func(t *rapid.T) {
			time.Sleep(time.Duration(rapid.Int64Range(1, 1e9).Draw(t, "nanoseconds")))
		},
		"watch": func(t *rapid.T) {
			after := w.after
			for _, e := range s.take(w) {
				require.Greater(t, e.Seq, after)
				after = e.Seq
				require.Contains(t, s.Entries(e.Pod.UID), e)
			}
			require.Equal(t, m.seq, w.after)
		},
		"restore": func(t *rapid.T) {
			write := &writer{path: file}
			require.NoError(t, s.write(write, s.watch("", 0)))
			before := map[types.UID][]Entry{}
			for uid := range m.pods {
				before[uid] = s.Entries(uid)
			}
			restored, err := New(opts)
			require.NoError(t, err)
			require.NoError(t, restored.Load(t.Context()))
			for uid, entries := range before {
				got := restored.Entries(uid)
				for i := range got {
					got[i].Seq = entries[i].Seq // they are numbered anew
				}
				require.Equal(t, entries, got)
			}
		},
		"": func(*rapid.T) { check() },
	})
}
