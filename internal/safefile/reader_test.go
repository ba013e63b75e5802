package safefile_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/internal/safefile"
	"github.com/kubeletkit/kubeletkit/internal/testenv"
)

func TestReader(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(path, []byte("text"), 0o600))
	var r safefile.Reader
	data, info, err := r.ReadFileInfo(t.Context(), path, 4)
	require.NoError(t, err)
	assert.Equal(t, "text", string(data))
	assert.EqualValues(t, 4, info.Size())
	_, err = r.ReadFile(t.Context(), path, 3)
	require.ErrorIs(t, err, safefile.ErrTooLarge)
	_, err = r.ReadFile(t.Context(), dir, 3)
	require.ErrorIs(t, err, safefile.ErrType)
	again, err := r.Stat(t.Context(), path)
	require.NoError(t, err)
	assert.True(t, safefile.Unchanged(info, again))
	assert.False(t, safefile.Unchanged(info, nil))
	entries, err := r.ReadDir(t.Context(), dir)
	require.NoError(t, err)
	assert.Len(t, entries, 1)

	require.NoError(t, os.WriteFile(path, []byte("texts"), 0o600))
	again, err = r.Stat(t.Context(), path)
	require.NoError(t, err)
	assert.False(t, safefile.Unchanged(info, again))

	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(assert.AnError)
	_, err = r.ReadFile(ctx, path, 10)
	require.ErrorIs(t, err, assert.AnError)
}

// A call without an answer costs its callers the timeout once. It is not made again before its end, and others go on.
func TestCallsWithoutAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := safefile.Reader{Timeout: 5 * time.Second}
		answer, calls := make(chan struct{}), atomic.Int32{}
		hang := func() (int, error) { calls.Add(1); <-answer; return 1, nil }
		var callers sync.WaitGroup
		began := time.Now()
		for range 3 {
			callers.Go(func() {
				_, err := safefile.Call(t.Context(), &r, "/disk", hang)
				assert.ErrorIs(t, err, safefile.ErrNoAnswer)
				assert.EqualError(t, err, "read /disk: no answer from the file system within 5s")
			})
		}
		n, err := safefile.Call(t.Context(), &r, "/other", func() (int, error) { return 2, assert.AnError })
		assert.Equal(t, 2, n)
		require.ErrorIs(t, err, assert.AnError)
		assert.Zero(t, time.Since(began))
		callers.Wait()
		assert.Equal(t, 5*time.Second, time.Since(began))

		var pathErr *fs.PathError
		_, err = safefile.Call(t.Context(), &r, "/disk", hang)
		require.ErrorAs(t, err, &pathErr)
		assert.Equal(t, 5*time.Second, time.Since(began), "it fails at once")
		assert.EqualValues(t, 1, calls.Load())

		close(answer)
		synctest.Wait()
		n, err = safefile.Call(t.Context(), &r, "/disk", hang)
		require.NoError(t, err)
		assert.Equal(t, 1, n)
	})
}

// A caller returns soon after its context has ended. What comes later is closed.
func TestTheEndOfAContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r safefile.Reader
		for takes, want := range map[time.Duration]error{50 * time.Millisecond: nil, time.Minute: assert.AnError} {
			ctx, cancel := context.WithCancelCause(t.Context())
			cancelled := time.AfterFunc(10*time.Millisecond, func() { cancel(assert.AnError) })
			defer cancelled.Stop()
			began, late := time.Now(), 0
			n, err := safefile.CallLate(ctx, &r, fmt.Sprint(takes),
				func() (int, error) { time.Sleep(takes); return 7, nil }, func(n int) { late = n })
			require.ErrorIs(t, err, want)
			assert.LessOrEqual(t, time.Since(began), 110*time.Millisecond)
			time.Sleep(time.Hour)
			synctest.Wait()
			assert.Equal(t, 7, n+late)
			assert.Equal(t, want == nil, n == 7)
		}
	})
}

// A bounded number of calls hangs; then others fail at once.
func TestManyCallsWithoutAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r safefile.Reader
		answer, calls := make(chan struct{}), atomic.Int32{}
		var callers sync.WaitGroup
		for i := range 100 {
			callers.Go(func() {
				_, err := safefile.Call(t.Context(), &r, fmt.Sprint(i),
					func() (int, error) { calls.Add(1); <-answer; return 0, nil })
				assert.ErrorIs(t, err, safefile.ErrNoAnswer)
			})
		}
		callers.Wait()
		began := time.Now()
		never := func() (int, error) { return 0, errors.New("called") }
		_, err := safefile.Call(t.Context(), &r, "other", never)
		require.ErrorIs(t, err, safefile.ErrNoAnswer)
		require.ErrorContains(t, err, "100 others")
		assert.Zero(t, time.Since(began))
		assert.EqualValues(t, 100, calls.Load())
		close(answer)
		synctest.Wait()
		_, err = safefile.Call(t.Context(), &r, "other", func() (int, error) { return 0, nil })
		require.NoError(t, err)
	})
}

// A file of which nothing is to be read is not read: a sparse one may have any size.
func TestTooLargeFilesAreNotRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	require.NoError(t, os.Truncate(path, 8<<30))
	var r safefile.Reader
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := r.ReadFile(t.Context(), path, 16<<20)
	runtime.ReadMemStats(&after)
	require.ErrorIs(t, err, safefile.ErrTooLarge)
	assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20))
}

// A file system whose server does not answer holds nobody up but its own reads.
func TestAFileSystemThatHangs(t *testing.T) {
	dir, answer := testenv.HangingDir(t)
	r := safefile.Reader{Timeout: 200 * time.Millisecond}
	path := filepath.Join(dir, "file")
	_, err := r.ReadFile(t.Context(), path, 10)
	require.ErrorIs(t, err, safefile.ErrNoAnswer)
	_, err = r.Stat(t.Context(), path)
	require.ErrorIs(t, err, safefile.ErrNoAnswer)
	_, err = r.ReadDir(t.Context(), dir)
	require.ErrorIs(t, err, safefile.ErrNoAnswer)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancelled := time.AfterFunc(time.Millisecond, func() { cancel(assert.AnError) })
	defer cancelled.Stop()
	_, err = new(safefile.Reader).ReadFile(ctx, path, 10)
	require.ErrorIs(t, err, assert.AnError)
	answer()
	require.Eventually(t, func() bool {
		_, err = r.ReadFile(t.Context(), path, 10)
		return err != nil && !errors.Is(err, safefile.ErrNoAnswer)
	}, time.Minute, time.Millisecond)
}
