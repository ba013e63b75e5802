package crilog_test

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kubeletkit/kubeletkit/runtime/crilog"
)

// rotatedLog is a log of numbered lines that a test rotates.
type rotatedLog struct {
	require.TestingT
	path  string
	files []crilog.Rotated
	next  int
	// begins has the first lines of the files and of the log.
	begins []int
}

func newRotatedLog(t require.TestingT, dir string) *rotatedLog {
	return &rotatedLog{TestingT: t, path: filepath.Join(dir, "0.log"), begins: []int{0}}
}

func (l *rotatedLog) write(n int) {
	f, err := os.OpenFile(l.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	require.NoError(l, err)
	for range n {
		_, err := fmt.Fprintf(f, "2026-01-02T03:04:05.%09dZ stdout F %d\n", l.next, l.next)
		require.NoError(l, err)
		l.next++
	}
	require.NoError(l, f.Close())
}

func (l *rotatedLog) at(name string) string { return filepath.Join(filepath.Dir(l.path), name) }

// rename renames the log, and makes no new one.
func (l *rotatedLog) rename() {
	last := ""
	if n := len(l.files); n > 0 {
		last = l.files[n-1].Name
	}
	r := crilog.Rotated{Name: crilog.NextRotated("0.log", last, time.Unix(0, 0))}
	require.NoError(l, os.Rename(l.path, l.at(r.Name)))
	complete := time.Now().Add(-time.Minute)
	require.NoError(l, os.Chtimes(l.at(r.Name), complete, complete))
	l.files = append(l.files, r)
	l.begins = append(l.begins, l.next)
}

func (l *rotatedLog) rotate() {
	l.rename()
	l.write(0)
}

// compress compresses all rotated files but the newest.
func (l *rotatedLog) compress() {
	for i := range max(0, len(l.files)-1) {
		r := &l.files[i]
		if r.Compressed {
			continue
		}
		data, err := os.ReadFile(l.at(r.Name))
		require.NoError(l, err)
		f, err := os.Create(l.at(r.Name + crilog.Compressed))
		require.NoError(l, err)
		zip := gzip.NewWriter(f)
		_, err = zip.Write(data)
		require.NoError(l, errors.Join(err, zip.Close(), f.Close(), os.Remove(l.at(r.Name))))
		r.Compressed = true
	}
}

func (l *rotatedLog) removeOldest() {
	require.NoError(l, os.Remove(l.at(l.files[0].File())))
	l.files, l.begins = l.files[1:], l.begins[1:]
}

// lines returns the numbers of the lines up to the end.
func lines(t require.TestingT, r *crilog.Reader) []int {
	var out []int
	for {
		line, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		require.NoError(t, err)
		n := 0
		_, err = fmt.Sscan(string(line.Text), &n)
		require.NoError(t, err)
		out = append(out, n)
	}
}

func sequence(from, to int) (out []int) {
	for ; from < to; from++ {
		out = append(out, from)
	}
	return out
}

func TestRotatedFilesAreRead(t *testing.T) {
	l := newRotatedLog(t, t.TempDir())
	for range 4 {
		l.write(100)
		l.rotate()
	}
	l.compress()
	l.write(50)
	require.NoError(t, os.WriteFile(l.at(l.files[0].Name+crilog.Temporary), []byte("cut off"), 0o600))
	for _, n := range []int{-1, 0, 1, 49, 50, 51, 149, 150, 151, 250, 251, 349, 449, 450, 451, 1000} {
		r, err := crilog.Open(l.path, n)
		require.NoError(t, err)
		require.NoError(t, r.Freeze())
		from := max(0, 450-n)
		if n < 0 {
			from = 0
		}
		assert.Equal(t, sequence(from, 450), lines(t, r), "the last %d", n)
		require.NoError(t, r.Close())
	}
	old := time.Now().Add(-time.Hour)
	for _, f := range l.files[:2] {
		require.NoError(t, os.Chtimes(l.at(f.File()), old, old))
	}
	r, err := crilog.OpenSince(l.path, time.Now().Add(-time.Minute))
	require.NoError(t, err)
	assert.Equal(t, sequence(200, 450), lines(t, r))
	require.NoError(t, r.Close())
	r, err = crilog.OpenSince(l.path, time.Now().Add(time.Minute))
	require.NoError(t, err)
	assert.Equal(t, sequence(400, 450), lines(t, r))
	require.NoError(t, r.Close())
}

// A reader that was opened before several rotations reads all of the files, wherever it was.
func TestSeveralRotationsAtOnce(t *testing.T) {
	for _, before := range []int{0, 1, 3} {
		l := newRotatedLog(t, t.TempDir())
		for range before {
			l.write(10)
			l.rotate()
		}
		l.write(10)
		r, err := crilog.Open(l.path, 5)
		require.NoError(t, err)
		n := l.next
		got := lines(t, r)
		l.write(10)
		for range 3 {
			l.rotate()
			l.write(10)
		}
		l.compress()
		got = append(got, lines(t, r)...)
		assert.Equal(t, sequence(n-5, l.next), got)
		require.NoError(t, r.Close())
	}
}

// While the log is renamed, it does not exist.
func TestTheLogIsRenamedAtThisMoment(t *testing.T) {
	l := newRotatedLog(t, t.TempDir())
	l.write(10)
	l.rename()
	for _, n := range []int{-1, 3} {
		frozen, err := crilog.Open(l.path, n)
		require.NoError(t, err)
		require.NoError(t, frozen.Freeze())
		r, err := crilog.Open(l.path, n)
		require.NoError(t, err)
		assert.Len(t, lines(t, r), map[int]int{-1: l.next, 3: 3}[n])
		l.write(10)
		assert.Len(t, lines(t, frozen), map[int]int{-1: l.next - 10, 3: 3}[n])
		assert.Equal(t, sequence(l.next-10, l.next), lines(t, r))
		require.NoError(t, r.Close())
		require.NoError(t, frozen.Close())
		l.rename()
	}
}

// A compressed file that was cut off ends there, and the next one is read.
func TestDamagedFiles(t *testing.T) {
	l := newRotatedLog(t, t.TempDir())
	for range 3 {
		l.write(1000)
		l.rotate()
	}
	l.compress()
	l.write(10)
	data, err := os.ReadFile(l.at(l.files[1].File()))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(l.at(l.files[1].File()), data[:len(data)/2], 0o600))
	r, err := crilog.Open(l.path, -1)
	require.NoError(t, err)
	got := lines(t, r)
	assert.Equal(t, sequence(0, 1000), got[:1000])
	assert.Equal(t, sequence(2000, 3010), got[len(got)-1010:])
	require.NoError(t, r.Close())
}

// Random writes, rotations, compressions and reads: a reader receives each line once, in order, except those of files
// that were removed.
func TestReaderModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp("", "crilog")
		require.NoError(t, err)
		defer os.RemoveAll(dir)
		l := newRotatedLog(t, dir)
		l.write(rapid.IntRange(0, 20).Draw(t, "lines"))
		type reader struct {
			*crilog.Reader
			next  int
			exact bool // no file was removed since
			end   int  // -1 if it is not frozen
		}
		var readers []*reader
		read := func(r *reader) {
			got := lines(t, r.Reader)
			for _, n := range got {
				if r.exact {
					require.Equal(t, r.next, n)
				}
				require.GreaterOrEqual(t, n, r.next)
				r.next = n + 1
			}
			want := l.next
			if r.end >= 0 {
				want = r.end
			}
			require.Equal(t, want, r.next)
		}
		steps := rapid.IntRange(1, 40).Draw(t, "steps")
		for range steps {
			switch rapid.IntRange(0, 7).Draw(t, "step") {
			case 0, 1:
				l.write(rapid.IntRange(1, 20).Draw(t, "lines"))
			case 2, 3:
				l.rotate()
				l.write(1) // so that no two files begin in the same way
			case 4:
				l.compress()
			case 5:
				if len(l.files) > 3 {
					l.removeOldest()
					for _, r := range readers {
						r.exact = r.exact && r.end >= 0
					}
				}
			case 6:
				n := rapid.IntRange(0, 60).Draw(t, "tail")
				f, err := crilog.Open(l.path, n)
				require.NoError(t, err)
				defer f.Close()
				r := &reader{Reader: f, next: max(l.begins[0], l.next-n), exact: true, end: -1}
				if rapid.Bool().Draw(t, "freeze") {
					require.NoError(t, f.Freeze())
					r.end = l.next
				}
				readers = append(readers, r)
			case 7:
				for _, r := range readers {
					read(r)
				}
			}
		}
		for _, r := range readers {
			read(r)
		}
	})
}

// What is read for the last lines does not depend on how much there is.
func BenchmarkLastLines(b *testing.B) {
	for _, files := range []int{0, 4} {
		b.Run(fmt.Sprint(files, " rotated"), func(b *testing.B) {
			l := newRotatedLog(b, b.TempDir())
			line := strings.Repeat("x", 100)
			for i := range files + 1 {
				f, err := os.OpenFile(l.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
				require.NoError(b, err)
				for range 100_000 {
					fmt.Fprintf(f, "2026-01-02T03:04:05.000000006Z stdout F %s\n", line)
				}
				require.NoError(b, f.Close())
				if i < files {
					l.rotate()
				}
			}
			for b.Loop() {
				r, err := crilog.Open(l.path, 100)
				require.NoError(b, err)
				_, err = r.Next()
				require.NoError(b, err)
				require.NoError(b, r.Close())
			}
		})
	}
}
