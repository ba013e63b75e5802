package table

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kubeletkit/kubeletkit/internal/apitest"
	"github.com/kubeletkit/kubeletkit/runtime"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// options are those of a table of words. The key of a word is its first letter; a word in
// capitals is not needed.
func options() Options[string] {
	return Options[string]{
		Reduce: func(object any) (string, string, bool) {
			word := object.(string)
			return strings.ToLower(word[:1]), word, word == strings.ToLower(word)
		},
		Logger: logr.Discard(),
	}
}

// read returns the words that a reader gets, in order.
func read(t *testing.T, table *Table[string], reader string) (words []string) {
	require.NoError(t, table.Read(t.Context().Done(), reader, func(values map[string]string) {
		for _, word := range values {
			words = append(words, word)
		}
	}))
	slices.Sort(words)
	return words
}

func TestChanges(t *testing.T) {
	table := New(options())
	s := (*store[string])(table)
	require.NoError(t, s.Replace([]any{"ant", "bee", "CAT"}, ""))
	assert.Equal(t, []string{"ant", "bee"}, read(t, table, ""))
	require.NoError(t, s.Add("cow"))
	require.NoError(t, s.Update("auk"))
	require.NoError(t, s.Update("BEE"))
	assert.Equal(t, []string{"auk", "cow"}, read(t, table, ""))
	require.NoError(t, s.Delete("cow"))
	assert.Equal(t, []string{"auk"}, read(t, table, ""))
	require.NoError(t, s.Replace(nil, ""))
	assert.Empty(t, read(t, table, ""))
}

// The functions of readers are called without a lock: they may use the table. What a reader has does not change.
func TestReadersUseTheTable(t *testing.T) {
	opts := options()
	var table *Table[string]
	var s *store[string]
	opts.Has = func(reader string, values map[string]string) bool {
		require.NoError(t, table.ReadNow(func(map[string]string) {}))
		return values[reader] != ""
	}
	ready := make(chan string, 100)
	opts.Ready = func(reader string) { ready <- reader }
	table = New(opts)
	s = (*store[string])(table)
	require.NoError(t, s.Replace([]any{"ant"}, ""))
	var had map[string]string
	require.NoError(t, table.Read(t.Context().Done(), "a", func(values map[string]string) {
		had = values
		require.NoError(t, s.Add("auk"))
		assert.Equal(t, []string{"auk"}, read(t, table, ""))
	}))
	assert.Equal(t, map[string]string{"a": "ant"}, had)

	var readers sync.WaitGroup
	for i := range 20 {
		readers.Go(func() { read(t, table, string(rune('b'+i))) })
	}
	for i := range 20 {
		require.NoError(t, s.Add(string(rune('b'+i))+" word"))
	}
	readers.Wait()
	for range len(table.waiting) {
		t.Error("a reader waits for what is there")
	}
}

// A reader that came too early is called once, when there is what it needs, and not before.
func TestReady(t *testing.T) {
	opts := options()
	opts.Has = func(reader string, values map[string]string) bool { return values[reader] != "" }
	var ready []string
	opts.Ready = func(reader string) { ready = append(ready, reader) }
	table := New(opts)
	s := (*store[string])(table)
	require.NoError(t, s.Replace([]any{"ant"}, ""))
	for _, reader := range []string{"a", "b", "c", "b", ""} {
		read(t, table, reader)
	}
	require.NoError(t, table.ReadNow(func(map[string]string) {}))
	require.NoError(t, s.Add("dog"))
	assert.Empty(t, ready)
	require.NoError(t, s.Add("bee"))
	require.NoError(t, s.Update("bat"))
	assert.Equal(t, []string{"b"}, ready)
	require.NoError(t, s.Replace([]any{"cow"}, ""))
	assert.Equal(t, []string{"b", "c"}, ready)
}

// Readers that come and go while nothing is known do not fill the memory.
func TestManyReaders(t *testing.T) {
	opts := options()
	ready := map[string]bool{}
	opts.Ready = func(reader string) { ready[reader] = true }
	table := New(opts)
	table.failed(errors.New("the API server is away"), true) // so that Read does not wait
	for i := range maxWaiting + 100 {
		require.ErrorIs(t, table.Read(nil, fmt.Sprint(i), func(map[string]string) {}), ErrNotRead)
	}
	last := fmt.Sprint(maxWaiting + 99)
	for range 100 { // it waits already
		require.ErrorIs(t, table.Read(nil, last, func(map[string]string) {}), ErrNotRead)
	}
	require.NoError(t, (*store[string])(table).Replace(nil, ""))
	assert.Len(t, ready, maxWaiting)
	assert.True(t, ready[last])
}

// Read waits a second for the first answer, and not at all after an error.
func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := New(options())
		tries := func(done <-chan struct{}) (time.Duration, error) {
			began := time.Now()
			err := table.Read(done, "", func(map[string]string) {})
			return time.Since(began), err
		}
		took, err := tries(nil)
		require.ErrorIs(t, err, ErrNotRead)
		assert.Equal(t, patience, took)

		ctx, cancel := context.WithTimeout(t.Context(), patience/2)
		defer cancel()
		took, err = tries(ctx.Done())
		require.ErrorIs(t, err, ErrNotRead)
		assert.Equal(t, patience/2, took)

		failure := errors.New("the API server is away")
		table.failed(failure, true)
		took, err = tries(nil)
		require.ErrorIs(t, err, ErrNotRead)
		require.ErrorIs(t, err, failure)
		assert.Zero(t, took)

		require.NoError(t, (*store[string])(table).Replace(nil, ""))
		took, err = tries(nil)
		require.NoError(t, err)
		assert.Zero(t, took)
	})
}

// counted is a checkpoint that counts how often something is kept.
type counted struct {
	apitest.Disk
	kept int
}

func (c *counted) KeepState(name string, state any) {
	c.kept++
	c.Disk.KeepState(name, state)
}

// Changes of a second are kept together, and the last ones at the end. The next run begins with
// them, and its readers need not wait for what is there.
func TestCheckpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &counted{}
		opts := options()
		opts.Checkpoint, opts.State = disk, "words"
		table := New(opts)
		s := (*store[string])(table)
		ctx, cancel := context.WithCancel(t.Context())
		var keeper sync.WaitGroup
		keeper.Go(func() { table.keep(ctx) })
		require.NoError(t, s.Replace([]any{"ant"}, ""))
		time.Sleep(saveDelay / 2)
		require.NoError(t, s.Add("bee"))
		time.Sleep(time.Hour)
		synctest.Wait()
		assert.Equal(t, 1, disk.kept)
		assert.JSONEq(t, `{"a": "ant", "b": "bee"}`, disk.Kept("words"))
		require.NoError(t, s.Add("cow"))
		cancel()
		keeper.Wait()
		assert.JSONEq(t, `{"a": "ant", "b": "bee", "c": "cow"}`, disk.Kept("words"))

		next := New(opts)
		next.failed(errors.New("the API server is away"), true)
		assert.Equal(t, []string{"ant", "bee", "cow"}, read(t, next, ""))
	})
}

// Nothing is requested before the first Read. A second Run is an error.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := New(options()) // a request would panic: there is no List
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- table.Run(ctx) }()
		synctest.Wait()
		assert.ErrorIs(t, table.Run(ctx), runtime.ErrAlreadyRunning)
		cancel()
		assert.NoError(t, <-done)
	})
}
