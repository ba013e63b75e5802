package checkpoint_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/podconfig/checkpoint"
)

// UIDs that are valid, and whose file names are too long, look like files of interrupted
// writes, or like those of other pods.
func TestUIDsThatAreNoNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		uids := []types.UID{types.UID(strings.Repeat("u", 250)), ".new-123", "sha256-" + "00", "plain"}
		var l logs
		opts := checkpoint.Options{Logger: l.logger()}
		life(t, dir, opts, func(s *checkpoint.Dir, _ []*v1.Pod) {
			for i, uid := range uids {
				s.Keep(makePod(fmt.Sprint("p", i), func(pod *v1.Pod) { pod.UID = uid }))
			}
			synctest.Wait()
			assert.Len(t, recordsIn(t, dir, "pods"), len(uids), "one that fails delays no other")
		})
		// The hash of the UID of another pod is a UID, too.
		taken := strings.TrimSuffix(recordsIn(t, dir, "pods")[1], ".checkpoint")
		require.Contains(t, taken, "sha256-")
		life(t, dir, opts, func(s *checkpoint.Dir, restored []*v1.Pod) {
			var got []types.UID
			for _, pod := range restored {
				got = append(got, pod.UID)
			}
			assert.ElementsMatch(t, uids, got)
			s.Keep(makePod("thief", func(pod *v1.Pod) { pod.UID = types.UID(taken) }))
			synctest.Wait()
			assert.Len(t, recordsIn(t, dir, "pods"), len(uids)+1)
			for _, uid := range append(uids, types.UID(taken)) {
				s.Drop(uid)
			}
		})
		assert.Empty(t, recordsIn(t, dir, "pods"))
		assert.Empty(t, l.take())
	})
}

// Records of a version that used each UID as a name are read.
func TestRecordsWithTheUIDAsName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		life(t, dir, checkpoint.Options{}, func(s *checkpoint.Dir, _ []*v1.Pod) {
			s.Keep(makePod("a", func(pod *v1.Pod) { pod.UID = "sha256-x" }))
		})
		name := recordsIn(t, dir, "pods")[0]
		data, err := os.ReadFile(filepath.Join(dir, "pods", name))
		require.NoError(t, err)
		require.NoError(t, os.Remove(filepath.Join(dir, "pods", name)))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "pods", "sha256-x.checkpoint"), data, 0o600))
		for range 2 {
			life(t, dir, checkpoint.Options{}, func(_ *checkpoint.Dir, restored []*v1.Pod) {
				assert.Equal(t, []string{"a"}, names(restored))
			})
			assert.Equal(t, []string{name}, recordsIn(t, dir, "pods"))
		}
		// It was written under the new name, and could not be removed under the old one.
		require.NoError(t, os.WriteFile(filepath.Join(dir, "pods", "sha256-x.checkpoint"), data, 0o600))
		for range 2 {
			life(t, dir, checkpoint.Options{}, func(_ *checkpoint.Dir, restored []*v1.Pod) {
				assert.Equal(t, []string{"a"}, names(restored))
			})
			assert.Equal(t, []string{name}, recordsIn(t, dir, "pods"))
		}
	})
}

// A record that cannot be written does not delay the others.
func TestOneRecordThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		var l logs
		life(t, dir, checkpoint.Options{Logger: l.logger()}, func(s *checkpoint.Dir, _ []*v1.Pod) {
			obstacle := filepath.Join(dir, "pods", "uid-bad.checkpoint", "file")
			require.NoError(t, os.MkdirAll(obstacle, 0o700))
			s.Keep(makePod("bad"))
			time.Sleep(time.Hour) // the back-off is at its maximum
			for i := range 5 {
				s.Keep(makePod(fmt.Sprint("p", i)))
				synctest.Wait()
				assert.Len(t, recordsIn(t, dir, "pods"), i+2)
			}
			assert.Equal(t, 1, strings.Count(l.take(), "Cannot write checkpoints"))
			require.NoError(t, os.RemoveAll(filepath.Dir(obstacle)))
			time.Sleep(2 * time.Minute)
			assert.Len(t, recordsIn(t, dir, "pods"), 6)
			assert.Contains(t, l.take(), "Checkpoints are written again")
		})
	})
}

// What could not be read again is not written, and not tried for ever.
func TestPodThatIsTooLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		huge := func(size int) func(*v1.Pod) {
			return func(pod *v1.Pod) { pod.Spec.Containers[0].Args = []string{strings.Repeat("x", size)} }
		}
		var l logs
		opts := checkpoint.Options{Logger: l.logger()}
		life(t, dir, opts, func(s *checkpoint.Dir, _ []*v1.Pod) {
			s.Keep(makePod("five", huge(5<<20)))
			s.Keep(makePod("twenty", huge(20<<20)))
			s.Keep(makePod("small"))
			time.Sleep(time.Hour)
			logged := l.take()
			assert.Equal(t, 1, strings.Count(logged, "is larger than 16 MiB"), logged)
			assert.Contains(t, logged, "twenty")
		})
		life(t, dir, opts, func(_ *checkpoint.Dir, restored []*v1.Pod) {
			assert.Equal(t, []string{"five", "small"}, names(restored))
		})
		assert.Empty(t, l.take())
	})
}

func TestAsideIsBounded(t *testing.T) {
	dir := t.TempDir()
	pods := filepath.Join(dir, "pods")
	require.NoError(t, os.MkdirAll(pods, 0o700))
	for i := range 150 {
		require.NoError(t, os.WriteFile(filepath.Join(pods, fmt.Sprintf("uid-%03d.checkpoint", i)), nil, 0o600))
	}
	long := strings.Repeat("n", 255)
	require.NoError(t, os.WriteFile(filepath.Join(pods, long), nil, 0o600))
	life(t, dir, checkpoint.Options{}, func(*checkpoint.Dir, []*v1.Pod) {})
	assert.Empty(t, recordsIn(t, dir, "pods"))
	aside := recordsIn(t, dir, "aside")
	assert.Len(t, aside, 100)
	assert.True(t, strings.HasPrefix(aside[len(aside)-1], "uid-149.checkpoint."), "the newest are kept")

	for i := range 3 {
		path := filepath.Join(pods, fmt.Sprint(i))
		require.NoError(t, os.WriteFile(path, nil, 0o600))
		require.NoError(t, os.Truncate(path, 50<<20))
	}
	life(t, dir, checkpoint.Options{}, func(*checkpoint.Dir, []*v1.Pod) {})
	assert.Len(t, recordsIn(t, dir, "aside"), 1, "64 MiB")
}

// A writer of the disk without the key must not choose the content of a secret.
func TestForgedSecret(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		life(t, dir, checkpoint.Options{}, func(s *checkpoint.Dir, _ []*v1.Pod) {
			s.Objects(&objectSource{secrets: map[string]*v1.Secret{"s": secret("s", "forged")}})
			s.Keep(makePod("a", withSecret("s")))
			synctest.Wait()
		})
		require.Len(t, recordsIn(t, dir, "objects"), 1)
		// A damaged one, and one that was set aside before there was a key.
		record := filepath.Join(dir, "objects", recordsIn(t, dir, "objects")[0])
		data, err := os.ReadFile(record)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "objects", strings.Repeat("ab", 32)+".checkpoint"),
			data[:len(data)-1], 0o600))
		require.NoError(t, os.Mkdir(filepath.Join(dir, "aside"), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "aside", filepath.Base(record)+".1"), data[:len(data)-1],
			0o600))
		// Their headers may be damaged, too.
		for i, damage := range []func([]byte) []byte{
			func(d []byte) []byte { return d[1:] },
			func(d []byte) []byte { return bytes.Replace(d, []byte("plain"), []byte("plein"), 1) },
			func(d []byte) []byte { return bytes.Replace(d, []byte(" 1 "), []byte(" x "), 1) },
		} {
			name := strings.Repeat(fmt.Sprintf("%02x", i), 32) + ".checkpoint"
			require.NoError(t, os.WriteFile(filepath.Join(dir, "objects", name), damage(bytes.Clone(data)), 0o600))
			require.NoError(t, os.WriteFile(filepath.Join(dir, "aside", name+".2"), damage(bytes.Clone(data)), 0o600))
		}

		var l logs
		s, err := checkpoint.New(dir, checkpoint.Options{Key: bytes.Repeat([]byte{1}, 32), Logger: l.logger()})
		require.NoError(t, err)
		source := s.Objects(&objectSource{err: fmt.Errorf("not reachable")})
		require.Len(t, s.Load(t.Context()), 1)
		_, err = source.Secret(t.Context(), "default", "s")
		require.ErrorContains(t, err, "not reachable")
		assert.Contains(t, l.take(), "is not encrypted although there is a key")
		assert.Empty(t, recordsIn(t, dir, "objects"))
		assert.Empty(t, recordsIn(t, dir, "aside"), "a secret would be there for anybody to read")
	})
}
