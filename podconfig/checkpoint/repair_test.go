package checkpoint

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// recordsIn returns the names of the files of one kind.
func recordsIn(t *testing.T, dir, kind string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(dir, kind))
	require.NoError(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// TestPrune drops what went while nobody could say so.
func TestPrune(t *testing.T) {
	dir := t.TempDir()
	life(t, dir, Options{}, func(s *Store, _ []*v1.Pod) {
		s.Keep(makePod("a"))
		s.Keep(makePod("b"))
	})
	life(t, dir, Options{}, func(s *Store, restored []*v1.Pod) {
		require.Len(t, restored, 2)
		s.Prune(func(uid types.UID) bool { return uid == "uid-b" })
	})
	assert.Equal(t, []string{"uid-b.checkpoint"}, recordsIn(t, dir, "pods"))
}

// TestTheNewerOfTwoRecordsCounts: a successor was written, and the power was lost
// before its predecessor was removed.
func TestTheNewerOfTwoRecordsCounts(t *testing.T) {
	for _, older := range []types.UID{"uid-a", "uid-z"} {
		dir := t.TempDir()
		life(t, dir, Options{}, func(s *Store, _ []*v1.Pod) {
			for _, uid := range []types.UID{"uid-a", "uid-z"} {
				s.Keep(makePod("same", func(pod *v1.Pod) { pod.UID = uid }))
			}
		})
		past := time.Now().Add(-time.Hour)
		require.NoError(t, os.Chtimes(filepath.Join(dir, "pods", string(older)+suffix), past, past))
		life(t, dir, Options{}, func(_ *Store, restored []*v1.Pod) {
			require.Len(t, restored, 1)
			assert.NotEqual(t, older, restored[0].UID)
		})
		assert.Len(t, recordsIn(t, dir, "pods"), 1)
	}
}

func TestAKeyThatComesLaterEncryptsWhatIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		source := &objectSource{secrets: map[string]*v1.Secret{"s": secret("s", "hidden")}}
		life(t, dir, Options{}, func(s *Store, _ []*v1.Pod) {
			s.Objects(source)
			s.Keep(makePod("a", withSecret("s")))
			synctest.Wait()
		})
		opts := Options{Key: bytes.Repeat([]byte{1}, 16)}
		life(t, dir, opts, func(*Store, []*v1.Pod) {})
		names := recordsIn(t, dir, "objects")
		require.Len(t, names, 1)
		record, err := os.ReadFile(filepath.Join(dir, "objects", names[0]))
		require.NoError(t, err)
		assert.True(t, isSealed(record))

		var l logs
		life(t, dir, Options{Logger: l.logger()}, func(*Store, []*v1.Pod) {})
		assert.Contains(t, l.take(), "it stays where it is")
		assert.Equal(t, names, recordsIn(t, dir, "objects"), "the key may come back")
	})
}

// hanging is a source of objects that does not answer.
type hanging struct{ objectSource }

func (*hanging) Secret(ctx context.Context, _, _ string) (*v1.Secret, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestPodsAreWrittenWhileTheirObjectsCannotBeAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		life(t, dir, Options{}, func(s *Store, _ []*v1.Pod) {
			s.Objects(&hanging{})
			for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
				s.Keep(makePod(name, withSecret("of-"+name)))
				time.Sleep(time.Second)
			}
			time.Sleep(2 * lookupTimeout)
			assert.Len(t, recordsIn(t, dir, "pods"), 6)
		})
	})
}
