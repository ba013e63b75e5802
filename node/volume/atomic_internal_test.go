//go:build unix

package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/internal/testenv"
)

func files(pairs ...string) payload {
	p := payload{}
	for i := 0; i < len(pairs); i += 2 {
		p[pairs[i]] = file{data: []byte(pairs[i+1]), mode: 0o644}
	}
	return p
}

func newWriter(t *testing.T, dir string) *writer {
	t.Helper()
	w, err := openWriter(dir, access{0o777, -1})
	require.NoError(t, err)
	t.Cleanup(func() { _ = w.root.Close() })
	return w
}

// visible is what a container reads in the volume.
func visible(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "..") {
			continue
		}
		top, err := filepath.EvalSymlinks(filepath.Join(dir, e.Name()))
		require.NoError(t, err)
		require.NoError(t, filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			rel, _ := filepath.Rel(top, path)
			data, err := os.ReadFile(path)
			out[filepath.Join(e.Name(), rel)] = string(data)
			return err
		}))
	}
	return out
}

func textOf(p payload) map[string]string {
	out := map[string]string{}
	for name, f := range p {
		out[name] = string(f.data)
	}
	return out
}

// tidy checks that the volume has one directory with files, and nothing of a write.
func tidy(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	var own []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "..") {
			own = append(own, e.Name())
		}
	}
	require.Len(t, own, 2, "%s", own)
	target, err := os.Readlink(filepath.Join(dir, dataLink))
	require.NoError(t, err)
	assert.Contains(t, own, target)
}

var versions = []payload{
	files("a", "1", "b", "1", "dir/x", "1"),
	files("a", "2", "c", "2", "dir/x", "2", "dir/deep/y", "2"),
	files("dir", "a file now", "a", "2"),
	files(),
	files("a", "1"),
}

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	w := newWriter(t, dir)
	assert.False(t, isWritten(dir))
	for _, v := range versions {
		changed, err := w.write(v)
		require.NoError(t, err)
		assert.True(t, changed)
		assert.True(t, isWritten(dir))
		assert.Equal(t, textOf(v), visible(t, dir))
		tidy(t, dir)

		before, err := os.Readlink(filepath.Join(dir, dataLink))
		require.NoError(t, err)
		w.before = func(step string) error { return errors.New("unexpected: " + step) }
		changed, err = w.write(v)
		require.NoError(t, err, "unchanged content writes nothing")
		assert.False(t, changed)
		w.before = nil
		after, err := os.Readlink(filepath.Join(dir, dataLink))
		require.NoError(t, err)
		assert.Equal(t, before, after)
	}
}

// errKilled ends a write where the process was killed.
var errKilled = errors.New("killed")

// A write that is killed before any of its steps leaves all files old or all new, and is
// completed by the next one, of the same payload or of another.
func TestWriteKilledAtEachStep(t *testing.T) {
	for from := range versions {
		for to := range versions {
			for _, then := range []int{from, to} {
				for kill := 1; ; kill++ {
					dir := testenv.MemoryDir(t)
					w := newWriter(t, dir)
					_, err := w.write(versions[from])
					require.NoError(t, err)
					steps := 0
					w.before = func(string) error {
						if steps++; steps >= kill {
							return errKilled
						}
						return nil
					}
					_, err = w.write(versions[to])
					if err == nil {
						break
					}
					require.ErrorIs(t, err, errKilled)
					where := fmt.Sprintf("from %d to %d, killed before step %d", from, to, kill)
					assert.True(t, isWritten(dir), where)
					data := contentOf(t, filepath.Join(dir, dataLink))
					assert.Contains(t, []map[string]string{textOf(versions[from]), textOf(versions[to])}, data, where)

					require.NoError(t, newWriter(t, dir).complete(), where)
					assert.Equal(t, data, visible(t, dir), "%s, when the new files cannot be had any more", where)
					tidy(t, dir)

					_, err = newWriter(t, dir).write(versions[then])
					require.NoError(t, err, where)
					assert.Equal(t, textOf(versions[then]), visible(t, dir), where)
					tidy(t, dir)
				}
			}
		}
	}
}

// The first write leaves nothing that counts as written until it has all files.
func TestFirstWriteKilledAtEachStep(t *testing.T) {
	for kill := 1; ; kill++ {
		dir := testenv.MemoryDir(t)
		w := newWriter(t, dir)
		steps := 0
		w.before = func(string) error {
			if steps++; steps >= kill {
				return errKilled
			}
			return nil
		}
		_, err := w.write(versions[1])
		if err == nil {
			break
		}
		if isWritten(dir) {
			assert.Equal(t, textOf(versions[1]), contentOf(t, filepath.Join(dir, dataLink)))
		}
		_, err = newWriter(t, dir).write(versions[1])
		require.NoError(t, err)
		assert.Equal(t, textOf(versions[1]), visible(t, dir))
		tidy(t, dir)
	}
}

func contentOf(t *testing.T, link string) map[string]string {
	t.Helper()
	root, err := filepath.EvalSymlinks(link)
	require.NoError(t, err)
	out := map[string]string{}
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, _ := filepath.Rel(root, path)
		data, err := os.ReadFile(path)
		out[rel] = string(data)
		return err
	}))
	return out
}

// Modes and owners do not depend on the umask.
func TestModesOfFiles(t *testing.T) {
	old := syscall.Umask(0o077)
	defer syscall.Umask(old)
	stat := func(path string) (fs.FileMode, uint32, uint32) {
		info, err := os.Stat(path)
		require.NoError(t, err)
		st := info.Sys().(*syscall.Stat_t)
		return info.Mode(), st.Uid, st.Gid
	}
	dir := t.TempDir()
	w := newWriter(t, dir)
	p := payload{"x": {mode: 0o640}, "d/y": {mode: 0o400}, "d/z": {mode: 0o777}}
	_, err := w.write(p)
	require.NoError(t, err)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "cut"), 0o755)) // what a call that was interrupted has left
	for range 2 {
		for _, point := range []string{"m/deep", "m/too", "cut/off", "d/in"} {
			require.NoError(t, w.makeMountPoint(point))
		}
	}
	require.Error(t, w.makeMountPoint("x"), "it is a file")
	const isDir = 0o755 | fs.ModeDir
	for name, want := range map[string]fs.FileMode{
		"x": 0o640, "d/y": 0o400, "d/z": 0o777, "d": isDir, dataLink: isDir,
		"m": isDir, "m/deep": isDir, "m/too": isDir, "cut": isDir, "cut/off": isDir, "d/in": isDir,
	} {
		mode, _, _ := stat(filepath.Join(dir, name))
		assert.Equal(t, want, mode, name)
	}
	if os.Getuid() != 0 {
		t.Skip("the rest needs root")
	}
	dir = t.TempDir()
	w, err = openWriter(dir, access{0o777 | fs.ModeSetgid, 2000})
	require.NoError(t, err)
	defer func() { _ = w.root.Close() }()
	p = payload{"x": {mode: 0o600, owner: ptr.To[int64](1000)}, "d/y": {mode: 0o200}}
	_, err = w.write(p)
	require.NoError(t, err)
	require.NoError(t, w.makeMountPoint("m/deep"))
	for name, want := range map[string]string{
		"m": "dgrwxr-xr-x 0 2000", "m/deep": "dgrwxr-xr-x 0 2000", "x": "-rw-r----- 1000 2000", "d/y": "-rw-r----- 0 2000", "d": "dgrwxr-xr-x 0 2000", dataLink: "dgrwxr-xr-x 0 2000",
	} {
		mode, uid, gid := stat(filepath.Join(dir, name))
		assert.Equal(t, want, fmt.Sprint(mode, " ", uid, " ", gid), name)
	}
}

// Links and other files that were planted in the volume lead nowhere.
func TestPlantedFiles(t *testing.T) {
	outside := t.TempDir()
	secret := filepath.Join(outside, "secret")
	require.NoError(t, os.WriteFile(secret, []byte("mine"), 0o600))
	for name, plant := range map[string]func(dir string) error{
		"..data leads out":       func(dir string) error { return os.Symlink(outside, filepath.Join(dir, dataLink)) },
		"..data leads up":        func(dir string) error { return os.Symlink("../..", filepath.Join(dir, dataLink)) },
		"..data leads to itself": func(dir string) error { return os.Symlink("..data", filepath.Join(dir, dataLink)) },
		"..data_tmp leads out":   func(dir string) error { return os.Symlink(outside, filepath.Join(dir, newDataLink)) },
		"..data_tmp is a directory": func(dir string) error {
			return os.MkdirAll(filepath.Join(dir, newDataLink, "deep"), 0o700)
		},
		"the directory leads out": func(dir string) error {
			return errors.Join(os.Symlink("..2020", filepath.Join(dir, dataLink)),
				os.Symlink(outside, filepath.Join(dir, "..2020")))
		},
		"an old directory leads out": func(dir string) error { return os.Symlink(outside, filepath.Join(dir, "..2020")) },
		"a file leads out":           func(dir string) error { return os.Symlink(secret, filepath.Join(dir, "secret")) },
		"a pipe":                     func(dir string) error { return syscall.Mkfifo(filepath.Join(dir, "secret"), 0o600) },
		"a pipe among the files": func(dir string) error {
			return errors.Join(os.Mkdir(filepath.Join(dir, "..2020"), 0o700),
				os.Symlink("..2020", filepath.Join(dir, dataLink)),
				syscall.Mkfifo(filepath.Join(dir, "..2020", "secret"), 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, plant(dir))
			p := files("secret", "of the pod")
			_, err := newWriter(t, dir).write(p)
			require.NoError(t, err)
			assert.Equal(t, textOf(p), visible(t, dir))
			tidy(t, dir)
			data, err := os.ReadFile(secret)
			require.NoError(t, err)
			assert.Equal(t, "mine", string(data))
		})
	}
}

// A reader that opens ..data sees all files of one version.
func TestReadersSeeNoMixture(t *testing.T) {
	dir := testenv.MemoryDir(t)
	w := newWriter(t, dir)
	version := func(i int) payload { return files("a", fmt.Sprint(i), "b", fmt.Sprint(i), "c/d", fmt.Sprint(i)) }
	_, err := w.write(version(0))
	require.NoError(t, err)
	stop := make(chan struct{})
	var readers sync.WaitGroup
	var reads [2]atomic.Int64 // of all files, by each reader
	for reader := range reads {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				root, err := os.OpenRoot(filepath.Join(dir, dataLink))
				if err != nil {
					continue // it was removed after the link was read
				}
				a, errA := root.ReadFile("a")
				b, errB := root.ReadFile("b")
				c, errC := root.ReadFile("c/d")
				_ = root.Close()
				if errA == nil && errB == nil && errC == nil {
					reads[reader].Add(1)
					assert.Equal(t, string(a), string(b))
					assert.Equal(t, string(a), string(c))
				}
			}
		})
	}
	for i := 0; i < 300 || reads[0].Load() == 0 || reads[1].Load() == 0; i++ {
		_, err := w.write(version(i))
		require.NoError(t, err)
		data, err := os.ReadFile(filepath.Join(dir, "a"))
		require.NoError(t, err, "the file is there at any time")
		assert.Equal(t, fmt.Sprint(i), string(data))
	}
	close(stop)
	readers.Wait()
}
