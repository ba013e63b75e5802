package history

import (
	"context"
	"fmt"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

func newStore(t testing.TB, opts Options) *Memory {
	s, err := New(opts)
	require.NoError(t, err)
	return s
}

func refOf(name string) runtime.PodRef {
	return runtime.PodRef{UID: types.UID("uid-" + name), Namespace: "default", Name: name}
}

func exited(ref runtime.PodRef, code int32) runtime.Record {
	return runtime.Record{Pod: ref, Stage: runtime.StageSeen, Kind: runtime.KindContainerExited, Container: "main",
		ExitCode: code}
}

func started(ref runtime.PodRef, attempt uint32) runtime.Record {
	return runtime.Record{Pod: ref, Stage: runtime.StageDone, Kind: runtime.KindStartContainer, Container: "main",
		Attempt: attempt}
}

func TestInvalidOptions(t *testing.T) {
	_, err := New(Options{MaxBytes: 10, MaxEntries: -1, MaxAge: -1, File: "relative"})
	assert.EqualError(t, err, strings.Join([]string{
		"history: Options.MaxBytes 10 is less than 1500", "history: Options.MaxEntries -1 is negative",
		"history: Options.MaxAge -1ns is negative", `history: Options.File "relative" is not an absolute path`,
	}, "\n"))
}

// A crash loop takes as many entries as two crashes, and what was before stays.
func TestACrashLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ref := newStore(t, Options{}), refOf("web")
		admitted := runtime.Record{Pod: ref, Stage: runtime.StageDecided, Kind: runtime.KindAdmit, Source: "file"}
		s.Record(admitted)
		begin := time.Now()
		for i := range 1000 {
			s.Record(started(ref, uint32(i)))
			time.Sleep(time.Minute)
			s.Record(exited(ref, 1))
		}
		entries := s.Entries(ref.UID)
		for i := range entries {
			entries[i].Seq = 0
		}
		at := func(d time.Duration) time.Time { return time.UnixMicro(begin.Add(d).UnixMicro()) }
		assert.Equal(t, []Entry{
			{Record: admitted, Count: 1, First: at(0), Last: at(0)},
			{Record: started(ref, 0), Count: 1, First: at(0), Last: at(0)},
			{Record: exited(ref, 1), Count: 1, First: at(time.Minute), Last: at(time.Minute)},
			{Record: started(ref, 999), Count: 999, First: at(time.Minute), Last: at(999 * time.Minute)},
			{Record: exited(ref, 1), Count: 999, First: at(2 * time.Minute), Last: at(1000 * time.Minute)},
		}, entries)
	})
}

func TestLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t, Options{MaxAge: 24 * time.Hour, MaxGone: 2, MaxEntries: 3})
		web := refOf("web")
		for i := range 5 {
			s.Record(exited(web, int32(i)))
		}
		assert.Len(t, s.Entries(web.UID), 3)
		assert.Equal(t, exited(web, 4), s.Entries(web.UID)[2].Record)

		gone := func(name string) { s.Record(runtime.Record{Pod: refOf(name), Kind: runtime.KindRemovePod}) }
		names := func() (all []string) {
			for _, p := range s.Pods() {
				name := p.Name
				if !p.GoneAt.IsZero() {
					name += " gone"
				}
				all = append(all, name)
			}
			return all
		}
		gone("a")
		gone("b")
		gone("a") // a second report changes nothing
		assert.Equal(t, []string{"a gone", "b gone", "web"}, names())
		gone("c")
		assert.Equal(t, []string{"b gone", "c gone", "web"}, names(), "the first that was gone goes first")
		s.Record(exited(refOf("b"), 0)) // it is there again
		gone("d")
		assert.Equal(t, []string{"b", "c gone", "d gone", "web"}, names())
		time.Sleep(time.Hour + sweepPeriod)
		assert.Equal(t, []string{"b", "web"}, names(), "an hour later")
		time.Sleep(24 * time.Hour)
		assert.Empty(t, names(), "nothing has happened for a day")
		assert.Empty(t, s.Entries(web.UID))
	})
}

// Texts are cut, and a pod always has its last entries.
func TestLongTexts(t *testing.T) {
	s, ref := newStore(t, Options{MaxBytes: minBytes}), refOf("web")
	r := exited(ref, 1)
	r.Reason, r.Message, r.Error = strings.Repeat("r", 1000), strings.Repeat("ä", 1000), strings.Repeat("e", 1000)
	s.Record(started(ref, 0))
	s.Record(r)
	s.Record(started(ref, 1))
	entries := s.Entries(ref.UID)
	require.Equal(t, started(ref, 1), entries[len(entries)-1].Record)
	s = newStore(t, Options{})
	s.Record(r)
	got := s.Entries(ref.UID)[0]
	assert.Equal(t, strings.Repeat("ä", 126)+"…", got.Message)
	assert.Len(t, got.Error, maxText)
	assert.Len(t, got.Reason, maxName)
}

// The memory of a pod is less than MaxBytes, whatever happens to it.
func TestMemory(t *testing.T) {
	const pods = 1000
	heap := func() uint64 {
		goruntime.GC()
		var m goruntime.MemStats
		goruntime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	refs := make([]runtime.PodRef, pods)
	s := newStore(t, Options{})
	before := heap()
	for i := range refs {
		refs[i] = runtime.PodRef{UID: types.UID(fmt.Sprintf("123e4567-e89b-12d3-a456-%012d", i)),
			Namespace: "monitoring", Name: fmt.Sprintf("collector-%030d", i)}
		for code := range int32(200) {
			s.Record(exited(refs[i], code))
		}
	}
	took := (heap() - before) / pods
	goruntime.KeepAlive(s)
	t.Logf("%d bytes for each pod with %d entries", took, len(s.Entries(refs[0].UID)))
	assert.Less(t, took, uint64(2000))
	assert.Greater(t, len(s.Entries(refs[0].UID)), 30)
}

func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, web, db := newStore(t, Options{}), refOf("web"), refOf("db")
		s.Record(started(web, 0))
		s.Record(started(db, 0))
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		watch := func(uid types.UID) *[]runtime.Record {
			var got []runtime.Record
			wg.Go(func() {
				for e := range s.Watch(ctx, uid) {
					got = append(got, e.Record)
				}
			})
			return &got
		}
		all, one := watch(""), watch(web.UID)
		synctest.Wait()
		assert.Equal(t, []runtime.Record{started(web, 0), started(db, 0)}, *all)
		s.Record(exited(db, 1))
		s.Record(exited(web, 2))
		s.Record(exited(web, 2))
		synctest.Wait()
		assert.Equal(t, []runtime.Record{started(web, 0), exited(web, 2)}, *one, "the repeat came before the reader")
		cancel()
		wg.Wait()
		assert.Equal(t, []runtime.Record{started(web, 0), started(db, 0), exited(db, 1), exited(web, 2)}, *all)
		assert.Empty(t, s.watchers)

		for range s.Watch(t.Context(), "") { // a reader that stops
			break
		}
		assert.Empty(t, s.watchers)
	})
}

func TestNone(t *testing.T) {
	var h Store = None{}
	h.Record(started(refOf("web"), 0))
	assert.Empty(t, h.Entries("uid-web"))
	assert.Empty(t, h.Pods())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range h.Watch(ctx, "") {
		t.Error("there is no entry")
	}
}

// Readers and writers work side by side.
func TestConcurrency(t *testing.T) {
	s := newStore(t, Options{MaxGone: 2})
	ctx, cancel := context.WithCancel(t.Context())
	var writers, readers sync.WaitGroup
	for n := range 4 {
		writers.Go(func() {
			for i := range 300 {
				ref := refOf(fmt.Sprint((n + i) % 5))
				s.Record(started(ref, uint32(i)))
				s.Record(runtime.Record{Pod: ref, Kind: runtime.KindRemovePod})
				s.Entries(ref.UID)
			}
		})
		readers.Go(func() {
			after := uint64(0)
			for e := range s.Watch(ctx, "") {
				assert.Greater(t, e.Seq, after)
				after = e.Seq
				s.Pods()
			}
		})
	}
	writers.Wait()
	cancel()
	readers.Wait()
	assert.LessOrEqual(t, len(s.Pods()), 5)
}

// BenchmarkRecord is the cost of a record: of a pod with a few entries, as at its start,
// and of one whose history is full.
func BenchmarkRecord(b *testing.B) {
	for name, kinds := range map[string]int32{"crash loop": 4, "full": 1000} {
		b.Run(name, func(b *testing.B) {
			s, ref := newStore(b, Options{}), refOf("web")
			r := exited(ref, 0)
			r.Reason, r.Message, r.Duration = "Error", "Container main failed liveness probe, will be restarted",
				time.Minute
			b.ReportAllocs()
			for i := int32(0); b.Loop(); i++ {
				r.ExitCode = i % kinds
				s.Record(r)
			}
		})
	}
}

// A runtime shows more and more pods, which no agent removes, while one reader is slow.
func TestPodsAreBounded(t *testing.T) {
	const most = 5000
	store := newStore(t, Options{})
	w := store.watch("", 0)
	defer store.unwatch(w)
	busy := runtime.PodRef{UID: "busy", Namespace: "default", Name: "busy"}
	for i := range 4 * most {
		uid := types.UID(fmt.Sprintf("u%d", i))
		store.Record(runtime.Record{Pod: runtime.PodRef{UID: uid, Namespace: "default", Name: "x"},
			Stage: runtime.StageSeen, Kind: runtime.KindSandboxReady})
		if i%100 == 0 {
			store.Record(runtime.Record{Pod: busy, Stage: runtime.StageSeen, Kind: runtime.KindContainerExited,
				Container: "c"})
		}
	}
	assert.LessOrEqual(t, len(store.Pods()), most)
	assert.LessOrEqual(t, len(w.news), most)
	assert.NotEmpty(t, store.Entries("busy"), "what is recorded often stays")
	assert.NotEmpty(t, store.Entries(types.UID(fmt.Sprintf("u%d", 4*most-1))))
}

// A rejection is in the history of the pod that runs under the name, or of a pod that counts
// as gone. What a pod has left behind does not bring it back.
func TestRecordsAside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "history")
		s := newStore(t, Options{File: file})
		web, old := refOf("web"), refOf("old")
		edited := web
		edited.UID = "another"
		reject := func(ref runtime.PodRef) runtime.Record {
			return runtime.Record{Pod: ref, Stage: runtime.StageDecided, Kind: runtime.KindReject, Source: "file",
				Message: "no image"}
		}
		cgroup := func(uid types.UID) runtime.Record {
			return runtime.Record{Pod: runtime.PodRef{UID: uid}, Stage: runtime.StageDone,
				Kind: runtime.KindRemoveCgroup}
		}
		kinds := func(s *Memory, uid types.UID) (all []runtime.RecordKind) {
			for _, e := range s.Entries(uid) {
				all = append(all, e.Kind)
			}
			return all
		}
		gone := func(s *Memory) map[string]bool {
			all := map[string]bool{}
			for _, p := range s.Pods() {
				all[p.Name] = !p.GoneAt.IsZero()
			}
			return all
		}
		s.Record(exited(web, 1))
		s.Record(reject(edited))
		s.Record(reject(refOf("never")))
		s.Record(reject(runtime.PodRef{Namespace: "default"}))
		s.Record(runtime.Record{Pod: old, Stage: runtime.StageDone, Kind: runtime.KindRemovePod})
		s.Record(cgroup(old.UID))
		s.Record(cgroup("unknown"))
		want := map[string]bool{"web": false, "never": true, "old": true}
		assert.Equal(t, want, gone(s))
		assert.Equal(t, []runtime.RecordKind{runtime.KindContainerExited, runtime.KindReject}, kinds(s, web.UID))
		assert.Equal(t, []runtime.RecordKind{runtime.KindRemovePod, runtime.KindRemoveCgroup}, kinds(s, old.UID))

		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.NoError(t, s.Run(ctx))
		next := newStore(t, Options{File: file})
		require.NoError(t, next.Load(t.Context()))
		next.Record(exited(web, 2))
		next.Record(reject(refOf("never")))
		assert.Equal(t, want, gone(next), "after a restart of the agent")

		next.Record(exited(refOf("never"), 0)) // it is valid now
		assert.False(t, gone(next)["never"])
	})
}
