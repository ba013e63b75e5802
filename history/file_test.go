package history

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// running is a Memory that keeps its file.
type running struct {
	*Memory
	stop func()
}

func runStore(t *testing.T, opts Options) running {
	s := newStore(t, opts)
	require.NoError(t, s.Load(t.Context()))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	return running{s, func() { cancel(); require.NoError(t, <-ended) }}
}

func records(entries []Entry) []runtime.Record {
	var out []runtime.Record
	for _, e := range entries {
		out = append(out, e.Record)
	}
	return out
}

// The history of an agent is that of the one before it.
func TestRestart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "history")
	synctest.Test(t, func(t *testing.T) {
		web, db, old := refOf("web"), refOf("db"), refOf("old")
		s := runStore(t, Options{File: file})
		s.Record(started(web, 0))
		s.Record(started(db, 0))
		s.Record(runtime.Record{Pod: old, Stage: runtime.StageDone, Kind: runtime.KindRemovePod})
		time.Sleep(2 * time.Second) // one write
		s.Record(exited(web, 1))
		s.stop()

		s = runStore(t, Options{File: file})
		s.Record(started(web, 1))
		agent := runtime.Record{Pod: web, Stage: runtime.StageSeen, Kind: runtime.KindAgentStarted}
		assert.Equal(t, []runtime.Record{started(web, 0), exited(web, 1), agent, started(web, 1)},
			records(s.Entries(web.UID)))
		assert.Equal(t, []runtime.Record{started(db, 0)}, records(s.Entries(db.UID)))
		gone := map[string]bool{}
		for _, p := range s.Pods() {
			gone[p.Name] = !p.GoneAt.IsZero()
		}
		assert.Equal(t, map[string]bool{"web": false, "db": true, "old": true}, gone,
			"nothing was recorded of db since")
		time.Sleep(2 * time.Hour)
		assert.Len(t, s.Pods(), 1)
		s.stop()

		info, err := os.Stat(file)
		require.NoError(t, err)
		assert.Equal(t, os.FileMode(0o600), info.Mode())
		left, err := os.ReadDir(filepath.Dir(file))
		require.NoError(t, err)
		assert.Len(t, left, 1, "no scratch file")
		require.ErrorIs(t, s.Run(t.Context()), runtime.ErrAlreadyRunning)
		require.ErrorIs(t, s.Load(t.Context()), runtime.ErrAlreadyRunning)
	})
}

// An agent that is killed while it writes has the entries before that one.
func TestACutFile(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "history")
	web := refOf("web")
	s := newStore(t, Options{File: file})
	w := &writer{path: file}
	news := s.watch("", 0)
	s.Record(started(web, 0))
	require.NoError(t, s.write(w, news))
	s.Record(exited(web, 1))
	require.NoError(t, s.write(w, news))
	whole, err := os.ReadFile(file)
	require.NoError(t, err)
	for cut := range len(whole) {
		require.NoError(t, os.WriteFile(file, whole[:cut], 0o600))
		s := newStore(t, Options{File: file})
		err := s.Load(t.Context())
		got := records(s.Entries(web.UID))
		switch {
		case cut < len(magic):
			assert.ErrorIs(t, err, errNoFile)
			assert.Empty(t, got)
		case len(got) == 0:
			assert.Equal(t, cut == len(magic), err == nil)
		default:
			assert.Equal(t, []runtime.Record{started(web, 0)}, got)
		}
	}
}

// The file does not grow with the number of crashes, and a disk that is full is no end.
func TestTheFileIsWrittenAnew(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "history")
	web := refOf("web")
	s := newStore(t, Options{File: file})
	w := &writer{path: file}
	news := s.watch("", 0)
	largest := int64(0)
	for i := range 5000 {
		s.Record(exited(web, int32(i%7)))
		require.NoError(t, s.write(w, news))
		info, err := os.Stat(file)
		require.NoError(t, err)
		require.Equal(t, w.size, info.Size())
		largest = max(largest, info.Size())
	}
	assert.LessOrEqual(t, largest, int64(minRewrite))
	before := s.Entries(web.UID)

	w.path = filepath.Join(dir, "none", "history")
	s.Record(started(web, 1))
	require.Error(t, s.write(w, news))
	w.path = file
	require.NoError(t, s.write(w, news), "all of it is written, not only what is new")
	restored := newStore(t, Options{File: file})
	require.NoError(t, restored.Load(t.Context()))
	assert.Equal(t, append(records(before), started(web, 1)), records(restored.Entries(web.UID)))
}

// A file that cannot be written is written when that is possible again, also without a new entry. It is logged once.
func TestAFileThatCannotBeWritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "none", "history")
	synctest.Test(t, func(t *testing.T) {
		lines := make(chan string, 100)
		s := runStore(t,
			Options{File: file, Logger: funcr.New(func(_, args string) { lines <- args }, funcr.Options{})})
		s.Record(exited(refOf("web"), 1))
		time.Sleep(time.Hour)
		require.NoError(t, os.Mkdir(filepath.Dir(file), 0o700))
		time.Sleep(time.Minute)
		synctest.Wait()
		restored := newStore(t, Options{File: file})
		require.NoError(t, restored.Load(t.Context()))
		assert.Len(t, restored.Entries(refOf("web").UID), 1)
		s.stop()
		require.Len(t, lines, 2)
		assert.Contains(t, <-lines, "The history cannot be written")
		assert.Contains(t, <-lines, "The history is written again")
	})
}

// An agent that is killed while it writes leaves a file, which the next one writes over.
func TestInterruptedWrite(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "history")
	require.NoError(t, os.WriteFile(file+".new", make([]byte, 1<<20), 0o600))
	s := runStore(t, Options{File: file})
	s.Record(exited(refOf("web"), 1))
	s.stop()
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, left, 1)
	info, err := left[0].Info()
	require.NoError(t, err)
	assert.Less(t, info.Size(), int64(1000))
}

func FuzzFrame(f *testing.F) {
	e := Entry{Record: exited(refOf("web"), 1), Seq: 1, Count: 3, First: time.UnixMicro(1), Last: time.UnixMicro(2)}
	f.Add(appendFrame(nil, &e))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, _, err := nextFrame(b)
		if err != nil {
			return
		}
		again, rest, err := nextFrame(appendFrame(nil, &e))
		require.NoError(t, err)
		require.Empty(t, rest)
		require.Equal(t, e, again)
	})
}
