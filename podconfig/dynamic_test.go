package podconfig_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/podconfig"
)

// add registers another scripted source.
func (b *bench) add(name string) (index int) {
	s := newScripted(name)
	require.NoError(b.t, b.mux.Add(s))
	b.sources = append(b.sources, s)
	return len(b.sources) - 1
}

func TestMuxAddAndRemove(t *testing.T) {
	t.Parallel()
	for name, play := range map[string]func(b *bench){
		"a source is added": func(b *bench) {
			b.set(0, testPod("1", "a"))
			b.read()
			require.True(b.t, b.mux.AllSeen())
			http := b.add("http")
			assert.False(b.t, b.mux.AllSeen())
			assert.Equal(b.t, []podconfig.SourceState{{"file", true}, {"http", false}}, b.mux.Sources())
			assert.Empty(b.t, b.read())
			b.set(http, testPod("2", "b"))
			assert.False(b.t, b.mux.AllSeen(), "the reader does not know yet")
			assert.Equal(b.t, []string{"ADD http b/2"}, b.read())
			assert.True(b.t, b.mux.AllSeen())
		},
		"a source is removed": func(b *bench) {
			http := b.add("http")
			b.set(0, testPod("1", "a"))
			b.set(http, testPod("2", "b"), testPod("3", "c"))
			b.read()
			assert.True(b.t, b.mux.Remove("http"))
			assert.Equal(b.t, []podconfig.SourceState{{"file", true}}, b.mux.Sources())
			synctest.Wait()
			assert.False(b.t, b.mux.AllSeen(), "the reader does not know yet")
			assert.Equal(b.t, []string{"REMOVE http b/2 c/3"}, b.read())
			assert.True(b.t, b.mux.AllSeen())
			assert.False(b.t, b.mux.Remove("http"))
		},
		"a source without pods is removed": func(b *bench) {
			b.add("http")
			b.set(0)
			b.read()
			assert.False(b.t, b.mux.AllSeen())
			b.mux.Remove("http")
			assert.Empty(b.t, b.read())
			assert.True(b.t, b.mux.AllSeen(), "nobody waits for it")
		},
		"another source takes over": func(b *bench) {
			http := b.add("http")
			b.set(0, testPod("1", "a"))
			b.set(http, testPod("2", "a"), testPod("1", "b"))
			assert.Equal(b.t, []string{"ADD file a/1", "ADD http"}, b.read())
			b.mux.Remove("file")
			assert.Equal(b.t, []string{"REMOVE file a/1", "ADD http a/2", "ADD http b/1"}, b.read())
			assert.Len(b.t, b.rejected, 2)
		},
		"a source is exchanged": func(b *bench) {
			b.set(0, testPod("1", "a"), testPod("2", "b"))
			b.read()
			b.mux.Remove("file")
			again := b.add("file")
			assert.Equal(b.t, []string{"REMOVE file a/1 b/2"}, b.read())
			assert.False(b.t, b.mux.AllSeen())
			b.set(again, testPod("1", "a"))
			assert.Equal(b.t, []string{"ADD file a/1"}, b.read())
		},
		"a source is exchanged before the reader looks": func(b *bench) {
			b.set(0, testPod("1", "a"), testPod("2", "b"), testPod("3", "c"))
			b.read()
			b.mux.Remove("file")
			again := b.add("file")
			b.set(again, testPod("1", "a"), testPod("2", "b", image("x")))
			assert.Equal(b.t, []string{"REMOVE file c/3", "UPDATE file b/2"}, b.read())
			assert.True(b.t, b.mux.AllSeen())
		},
		"removal in the middle of a batch": func(b *bench) {
			http := b.add("http")
			b.set(0, testPod("1", "a"))
			b.set(http, testPod("2", "b"))
			assert.Equal(b.t, "file", (<-b.mux.Changes()).Source)
			synctest.Wait()
			b.mux.Remove("http")
			synctest.Wait()
			assert.False(b.t, b.mux.AllSeen())
			assert.Equal(b.t, []string{"ADD http b/2", "REMOVE http b/2"}, b.read())
			assert.True(b.t, b.mux.AllSeen())
		},
		"before anything was delivered": func(b *bench) {
			b.set(0, testPod("1", "a"))
			b.mux.Remove("file")
			assert.Empty(b.t, b.read())
			assert.True(b.t, b.mux.AllSeen())
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, "file")
				synctest.Wait()
				play(b)
				b.stop()
			})
		})
	}
}

func TestMuxAddRefuses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, "file")
		assert.EqualError(t, b.mux.Add(newScripted("file")), `there is another source of the same name "file"`)
		assert.EqualError(t, b.mux.Add(newScripted("")), "the source has no name")
		assert.EqualError(t, b.mux.Add(nil), "the source is nil")
		b.stop()
		err := b.mux.Add(newScripted("late"))
		assert.ErrorIs(t, err, podconfig.ErrMuxEnded)
		assert.EqualError(t, err, `adding source "late": the pod config mux has ended`)
		assert.True(t, b.mux.Remove("file"), "it can still be taken away")
	})
}

func TestMuxRemoveBeforeRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		never := sourceFunc{"never", func(context.Context, podconfig.Sink) error { panic("it was removed") }}
		m, err := podconfig.New(podconfig.Options{Sources: []podconfig.Source{never}, Restore: restoring(testPod("1", "a", from("never"))).Restore})
		require.NoError(t, err)
		require.True(t, m.Remove("never"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		go func() {
			for c := range m.Changes() {
				t.Error(c)
			}
		}()
		require.NoError(t, m.Run(ctx))
		assert.True(t, m.AllSeen())
	})
}

// TestMuxRemoveJoins has a source that takes its time to end, and speaks while it
// does.
func TestMuxRemoveJoins(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		ended := false
		require.NoError(t, b.mux.Add(sourceFunc{"slow", func(ctx context.Context, sink podconfig.Sink) error {
			sink.Set([]*v1.Pod{testPod("1", "a")})
			<-ctx.Done()
			time.Sleep(10 * time.Second)
			sink.Set([]*v1.Pod{testPod("2", "b")})
			ended = true
			return errors.New("nobody wants to know")
		}}))
		assert.Equal(t, []string{"ADD slow a/1"}, b.read())
		began := time.Now()
		go func() {
			time.Sleep(time.Second)
			assert.Equal(t, []string{"REMOVE slow a/1"}, b.read(), "its pods go at once")
		}()
		require.True(t, b.mux.Remove("slow"))
		assert.True(t, ended)
		assert.Equal(t, 10*time.Second, time.Since(began))
		assert.Empty(t, b.read())
		b.stop()
	})
}

func TestAFrozenMuxKeepsWhatItHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sets := make(chan []*v1.Pod)
		m, err := podconfig.New(podconfig.Options{Sources: []podconfig.Source{podconfig.NewChannel("test", sets)}})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- m.Run(ctx) }()
		sets <- []*v1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "default", UID: "a"}}}
		change := <-m.Changes()
		assert.Equal(t, podconfig.Add, change.Op)
		m.Freeze()
		sets <- nil
		synctest.Wait()
		select {
		case change := <-m.Changes():
			t.Errorf("unexpected %v", change)
		default:
		}
		cancel()
		require.NoError(t, <-done)
	})
}
