package checkpoint_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/internal/safefile"
	"github.com/kubeletkit/kubeletkit/node/internal/checkpoint"
)

func TestRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	none := func([]byte) error { return nil }
	require.ErrorIs(t, checkpoint.Read(&safefile.Reader{}, path, 4, none), os.ErrNotExist)
	require.NoError(t, os.WriteFile(path, []byte("four"), 0o600))
	require.NoError(t, checkpoint.Read(&safefile.Reader{}, path, 4, none))
	damaged := (*checkpoint.DamagedError)(nil)
	require.ErrorAs(t, checkpoint.Read(&safefile.Reader{}, path, 3, none), &damaged)
	require.ErrorIs(t, damaged, safefile.ErrTooLarge)
	bad := errors.New("bad")
	err := checkpoint.Read(&safefile.Reader{}, path, 4, func([]byte) error { return bad })
	require.ErrorAs(t, err, &damaged)
	require.ErrorIs(t, err, bad)
	aside, err := checkpoint.SetAside(path)
	require.NoError(t, err)
	assert.FileExists(t, aside)
	require.NoError(t, errors.Join(checkpoint.Remove(path), checkpoint.Remove(aside)))
	assert.NoFileExists(t, aside)
}

// store is a manager with a file.
type store struct {
	mu      sync.Mutex
	version int
	fails   error // of the disk
	written []string
}

func (s *store) set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func (s *store) file(path string) *checkpoint.File {
	f := checkpoint.New(path, func() (err error) {
		s.set(func() { err = s.fails })
		return err
	}, func() (data []byte, _ error) {
		s.set(func() { data = []byte{byte('0' + s.version)} })
		return data, nil
	})
	f.Changed() // to version 1
	write := f.Write
	f.Write = func(path string, data []byte) (err error) {
		s.set(func() {
			if err = s.fails; err == nil {
				s.written = append(s.written, string(data))
			}
		})
		if err != nil {
			return err
		}
		return write(path, data)
	}
	return f
}

// A file that cannot be read is read again, and one that cannot be written is written again; what did not change is not
// written.
func TestFile(t *testing.T) {
	full := errors.New("no space left on device")
	path := filepath.Join(t.TempDir(), "new", "file")
	synctest.Test(t, func(t *testing.T) {
		s := &store{fails: full, version: 1}
		f := s.file(path)
		require.ErrorIs(t, f.Save(), full)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); f.Run(ctx, logr.Discard()) }()
		synctest.Wait()
		s.set(func() { s.fails = nil })
		time.Sleep(time.Second)
		synctest.Wait()
		require.NoError(t, f.Save())
		assert.Equal(t, []string{"1"}, s.written)

		s.set(func() { s.fails, s.version = full, 2 })
		f.Changed()
		f.SaveLater()
		synctest.Wait()
		assert.ErrorIs(t, f.Save(), full)
		s.set(func() { s.fails = nil })
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, []string{"1", "2"}, s.written)
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.Equal(t, "2", string(data))

		s.set(func() { s.version = 3 })
		f.Changed()
		f.SaveLater()
		cancel()
		<-done
		assert.Equal(t, []string{"1", "2", "3"}, s.written, "also what changes at the end")
	})
}

// A file of which nothing can be used is not read again until it has changed, and one that the disk does not return is
// read once a second, however many pods ask for it.
func TestUnreadableFilesAreNotReadAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	require.NoError(t, os.Truncate(path, 8<<30))
	synctest.Test(t, func(t *testing.T) {
		reads := 0
		var fails error // of the disk
		var f *checkpoint.File
		f = checkpoint.New(path, func() error {
			reads++
			if fails != nil {
				return fails
			}
			return checkpoint.Read(&f.Reader, path, checkpoint.MaxSize, func([]byte) error { return nil })
		}, nil)
		load := func(times int) (err error) {
			for range times {
				err = f.Load()
				time.Sleep(100 * time.Millisecond)
			}
			return err
		}
		require.ErrorIs(t, load(100), safefile.ErrTooLarge)
		assert.Equal(t, 1, reads)
		fails = errors.New("input/output error")
		require.NoError(t, os.Truncate(path, 4<<30))
		require.ErrorIs(t, load(100), fails)
		assert.Equal(t, 1+10, reads)
		fails = nil
		time.Sleep(time.Second)
		require.ErrorIs(t, load(100), safefile.ErrTooLarge)
		assert.Equal(t, 1+10+1, reads)
		require.NoError(t, os.WriteFile(path, []byte("text"), 0o600))
		require.NoError(t, load(10))
		assert.Equal(t, 1+10+1+1, reads)
	})
}

// What could not be read again is not written.
func TestTooLargeFilesAreNotWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	f := checkpoint.New(path, func() error { return nil },
		func() ([]byte, error) { return make([]byte, checkpoint.MaxSize+1), nil })
	require.NoError(t, f.Save(), "nothing has changed")
	f.Changed()
	require.ErrorContains(t, f.Save(), "more than 16 MiB")
	assert.NoFileExists(t, path)
}

// Loaded reads once. After a failure it returns the error without a read, until a Load has succeeded.
func TestLoaded(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		fails := errors.New("input/output error")
		reads := 0
		f := checkpoint.New(filepath.Join(dir, "state"), func() error { reads++; return fails }, nil)
		for range 3 {
			require.ErrorIs(t, f.Loaded(), fails)
			time.Sleep(time.Minute)
		}
		assert.Equal(t, 1, reads)
		require.Error(t, f.Load())
		fails = nil
		require.Error(t, f.Loaded(), "it is not read again")
		time.Sleep(time.Minute)
		require.NoError(t, f.Load())
		require.NoError(t, f.Loaded())
		assert.Equal(t, 3, reads)
	})
}
