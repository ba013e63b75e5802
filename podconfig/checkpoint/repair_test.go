package checkpoint_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/podconfig/checkpoint"
	"github.com/kubeletkit/kubeletkit/podconfig/objects"
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

// TestPrune drops a pod that was removed while no agent ran.
func TestPrune(t *testing.T) {
	dir := t.TempDir()
	life(t, dir, checkpoint.Options{}, func(s *checkpoint.Dir, _ []*v1.Pod) {
		s.Keep(makePod("a"))
		s.Keep(makePod("b"))
	})
	life(t, dir, checkpoint.Options{}, func(s *checkpoint.Dir, restored []*v1.Pod) {
		require.Len(t, restored, 2)
		s.Prune(func(uid types.UID) bool { return uid == "uid-b" })
	})
	assert.Equal(t, []string{"uid-b.checkpoint"}, recordsIn(t, dir, "pods"))
}

// TestTheNewerOfTwoRecordsCounts: the power was lost after a pod was written and before
// its predecessor was removed.
func TestTheNewerOfTwoRecordsCounts(t *testing.T) {
	for _, older := range []types.UID{"uid-a", "uid-z"} {
		dir := t.TempDir()
		life(t, dir, checkpoint.Options{}, func(s *checkpoint.Dir, _ []*v1.Pod) {
			for _, uid := range []types.UID{"uid-a", "uid-z"} {
				s.Keep(makePod("same", func(pod *v1.Pod) { pod.UID = uid }))
			}
		})
		past := time.Now().Add(-time.Hour)
		require.NoError(t, os.Chtimes(filepath.Join(dir, "pods", string(older)+".checkpoint"), past, past))
		life(t, dir, checkpoint.Options{}, func(_ *checkpoint.Dir, restored []*v1.Pod) {
			require.Len(t, restored, 1)
			assert.NotEqual(t, older, restored[0].UID)
		})
		assert.Len(t, recordsIn(t, dir, "pods"), 1)
	}
}

func TestNewKeyEncryptsExistingRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		source := &objectSource{secrets: map[string]*v1.Secret{"s": secret("s", "hidden")}}
		life(t, dir, checkpoint.Options{}, func(s *checkpoint.Dir, _ []*v1.Pod) {
			s.Objects(source)
			s.Keep(makePod("a", withSecret("s")))
			synctest.Wait()
		})
		opts := checkpoint.Options{Key: bytes.Repeat([]byte{1}, 16)}
		before := recordsIn(t, dir, "objects")
		s, err := checkpoint.New(dir, opts)
		require.NoError(t, err)
		s.Objects(source)
		require.Len(t, s.Load(t.Context()), 1)
		assert.Empty(t, recordsIn(t, dir, "objects"), "nobody can read them any more")
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1) // one value, of the one goroutine
		go func() { done <- s.Run(ctx) }()
		synctest.Wait()
		cancel()
		require.NoError(t, <-done)
		assert.Equal(t, before, recordsIn(t, dir, "objects"))
		names := recordsIn(t, dir, "objects")
		require.Len(t, names, 1)
		record, err := os.ReadFile(filepath.Join(dir, "objects", names[0]))
		require.NoError(t, err)
		assert.Regexp(t, "^kubeletkit-checkpoint 1 aes-gcm ", string(record))
		assert.NotContains(t, string(record), "aGlkZGVu", "base64 of hidden")

		var l logs
		life(t, dir, checkpoint.Options{Logger: l.logger()}, func(*checkpoint.Dir, []*v1.Pod) {})
		assert.Contains(t, l.take(), "it stays where it is")
		assert.Equal(t, names, recordsIn(t, dir, "objects"), "the key may be given again")
	})
}

// hanging is a source of objects that does not answer.
type hanging struct{ objectSource }

func (*hanging) Secret(ctx context.Context, _, _ string) (*v1.Secret, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestPodsAreWrittenWhileLookupsHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		life(t, dir, checkpoint.Options{}, func(s *checkpoint.Dir, _ []*v1.Pod) {
			s.Objects(&hanging{})
			for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
				s.Keep(makePod(name, withSecret("of-"+name)))
				time.Sleep(time.Second)
			}
			time.Sleep(20 * time.Second)
			assert.Len(t, recordsIn(t, dir, "pods"), 6)
		})
	})
}

// While an agent with many pods starts, each of their secrets is looked up for the first time. The cost of
// such a lookup does not depend on the number of pods.
func TestCostOfALookup(t *testing.T) {
	s, err := checkpoint.New(t.TempDir(), checkpoint.Options{})
	require.NoError(t, err)
	var all []metav1.Object
	for i := range 1000 {
		all = append(all, secret(fmt.Sprint("s", i), "1"))
		s.Keep(makePod(fmt.Sprint("p", i), withSecret(fmt.Sprint("s", i))))
	}
	store := objects.New()
	store.Set(all...)
	src, next := s.Objects(store), 0
	assert.Less(t, testing.AllocsPerRun(100, func() {
		_, err := src.Secret(t.Context(), "default", fmt.Sprint("s", next))
		require.NoError(t, err)
		next++
	}), 100.0)
}

// A record of an object stays as long as one of the kept pods refers to the object.
func TestReferencesOfSeveralPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		s, err := checkpoint.New(dir, checkpoint.Options{})
		require.NoError(t, err)
		store := objects.New()
		store.Set(secret("one", "1"), secret("other", "1"))
		s.Objects(store)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		count := func() int {
			synctest.Wait()
			return len(recordsIn(t, dir, "objects"))
		}
		s.Keep(makePod("a", withSecret("one")))
		s.Keep(makePod("b", withSecret("one")))
		assert.Equal(t, 1, count())
		s.Keep(makePod("a", withSecret("other")))
		assert.Equal(t, 2, count())
		s.Keep(makePod("a", withSecret("other"), func(pod *v1.Pod) { pod.Labels = map[string]string{"new": "yes"} }))
		s.Drop("uid-b")
		assert.Equal(t, 1, count())
		s.Keep(makePod("a"))
		assert.Zero(t, count(), "a pod that does not refer to it any more")
		cancel()
		require.NoError(t, <-done)
	})
}
