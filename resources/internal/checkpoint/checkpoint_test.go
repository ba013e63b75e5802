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
	"github.com/kubeletkit/kubeletkit/resources/internal/checkpoint"
)

func TestRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	none := func([]byte) error { return nil }
	require.ErrorIs(t, checkpoint.Read(path, 4, none), os.ErrNotExist)
	require.NoError(t, os.WriteFile(path, []byte("four"), 0o600))
	require.NoError(t, checkpoint.Read(path, 4, none))
	damaged := (*checkpoint.DamagedError)(nil)
	require.ErrorAs(t, checkpoint.Read(path, 3, none), &damaged)
	require.ErrorIs(t, damaged, safefile.ErrTooLarge)
	bad := errors.New("bad")
	err := checkpoint.Read(path, 4, func([]byte) error { return bad })
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
	version uint64
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
	}, func(saved uint64) (version uint64, data []byte, _ error) {
		s.set(func() { version = s.version })
		return version, []byte{byte('0' + version)}, nil
	})
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

// A file that cannot be read is read again, and one that cannot be written is written again; what did not change is not written.
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
		f.SaveLater()
		cancel()
		<-done
		assert.Equal(t, []string{"1", "2", "3"}, s.written, "also what changes at the end")
	})
}
