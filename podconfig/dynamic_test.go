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

	"github.com/kubeletkit/kubeletkit/podconfig"
)

// add registers another scripted source.
func (r *rig) add(name string) (index int) {
	s := newScripted(name)
	require.NoError(r.t, r.mux.Add(s))
	r.sources = append(r.sources, s)
	return len(r.sources) - 1
}

func TestMuxAddAndRemove(t *testing.T) {
	t.Parallel()
	for name, play := range map[string]func(r *rig){
		"a source is added": func(r *rig) {
			r.set(0, testPod("1", "a"))
			r.read()
			require.True(r.t, r.mux.SourcesReady())
			http := r.add("http")
			assert.False(r.t, r.mux.SourcesReady())
			assert.Equal(r.t, []podconfig.SourceState{{Name: "file", Seen: true}, {Name: "http", Seen: false}},
				r.mux.Sources())
			assert.Empty(r.t, r.read())
			r.set(http, testPod("2", "b"))
			assert.False(r.t, r.mux.SourcesReady(), "the reader has not received it yet")
			assert.Equal(r.t, []string{"ADD http b/2"}, r.read())
			assert.True(r.t, r.mux.SourcesReady())
		},
		"a source is removed": func(r *rig) {
			http := r.add("http")
			r.set(0, testPod("1", "a"))
			r.set(http, testPod("2", "b"), testPod("3", "c"))
			r.read()
			assert.True(r.t, r.mux.Remove("http"))
			assert.Equal(r.t, []podconfig.SourceState{{Name: "file", Seen: true}}, r.mux.Sources())
			synctest.Wait()
			assert.False(r.t, r.mux.SourcesReady(), "the reader has not received it yet")
			assert.Equal(r.t, []string{"REMOVE http b/2 c/3"}, r.read())
			assert.True(r.t, r.mux.SourcesReady())
			assert.False(r.t, r.mux.Remove("http"))
		},
		"a source without pods is removed": func(r *rig) {
			r.add("http")
			r.set(0)
			r.read()
			assert.False(r.t, r.mux.SourcesReady())
			r.mux.Remove("http")
			assert.Empty(r.t, r.read())
			assert.True(r.t, r.mux.SourcesReady(), "a removed source is not waited for")
		},
		"another source takes over": func(r *rig) {
			http := r.add("http")
			r.set(0, testPod("1", "a"))
			r.set(http, testPod("2", "a"), testPod("1", "b"))
			assert.Equal(r.t, []string{"ADD file a/1", "ADD http"}, r.read())
			r.mux.Remove("file")
			assert.Equal(r.t, []string{"REMOVE file a/1", "ADD http a/2", "ADD http b/1"}, r.read())
			assert.Len(r.t, r.rejected, 2)
		},
		"a source is exchanged": func(r *rig) {
			r.set(0, testPod("1", "a"), testPod("2", "b"))
			r.read()
			r.mux.Remove("file")
			again := r.add("file")
			assert.Equal(r.t, []string{"REMOVE file a/1 b/2"}, r.read())
			assert.False(r.t, r.mux.SourcesReady())
			r.set(again, testPod("1", "a"))
			assert.Equal(r.t, []string{"ADD file a/1"}, r.read())
		},
		"a source is exchanged before the reader looks": func(r *rig) {
			r.set(0, testPod("1", "a"), testPod("2", "b"), testPod("3", "c"))
			r.read()
			r.mux.Remove("file")
			again := r.add("file")
			r.set(again, testPod("1", "a"), testPod("2", "b", image("x")))
			assert.Equal(r.t, []string{"REMOVE file c/3", "UPDATE file b/2"}, r.read())
			assert.True(r.t, r.mux.SourcesReady())
		},
		"removal in the middle of a batch": func(r *rig) {
			http := r.add("http")
			r.set(0, testPod("1", "a"))
			r.set(http, testPod("2", "b"))
			assert.Equal(r.t, "file", (<-r.mux.Changes()).Source)
			synctest.Wait()
			r.mux.Remove("http")
			synctest.Wait()
			assert.False(r.t, r.mux.SourcesReady())
			assert.Equal(r.t, []string{"ADD http b/2", "REMOVE http b/2"}, r.read())
			assert.True(r.t, r.mux.SourcesReady())
		},
		"before anything was delivered": func(r *rig) {
			r.set(0, testPod("1", "a"))
			r.mux.Remove("file")
			assert.Empty(r.t, r.read())
			assert.True(r.t, r.mux.SourcesReady())
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, "file")
				synctest.Wait()
				play(r)
				r.stop()
			})
		})
	}
}

func TestMuxAddRefuses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "file")
		assert.EqualError(t, r.mux.Add(newScripted("file")), `there is another source of the same name "file"`)
		assert.EqualError(t, r.mux.Add(newScripted("")), "the source has no name")
		assert.EqualError(t, r.mux.Add(nil), "the source is nil")
		r.stop()
		err := r.mux.Add(newScripted("late"))
		assert.ErrorIs(t, err, podconfig.ErrMuxEnded)
		assert.EqualError(t, err, `adding source "late": the pod config mux has ended`)
		assert.True(t, r.mux.Remove("file"), "it can still be taken away")
	})
}

func TestMuxRemoveBeforeRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		never := sourceFunc{"never", func(context.Context, podconfig.Sink) error { panic("it was removed") }}
		m, err := podconfig.New(podconfig.Options{Sources: []podconfig.Source{never},
			Restore: restoring(testPod("1", "a", from("never"))).Restore})
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
		assert.True(t, m.SourcesReady())
	})
}

// TestMuxRemoveJoins has a source that takes its time to end, and delivers while it
// does.
func TestMuxRemoveJoins(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		ended := false
		require.NoError(t, r.mux.Add(sourceFunc{"slow", func(ctx context.Context, sink podconfig.Sink) error {
			sink.Set([]*v1.Pod{testPod("1", "a")})
			<-ctx.Done()
			time.Sleep(10 * time.Second)
			sink.Set([]*v1.Pod{testPod("2", "b")})
			ended = true
			return errors.New("after the end")
		}}))
		assert.Equal(t, []string{"ADD slow a/1"}, r.read())
		began := time.Now()
		go func() {
			time.Sleep(time.Second)
			assert.Equal(t, []string{"REMOVE slow a/1"}, r.read(), "its pods go at once")
		}()
		require.True(t, r.mux.Remove("slow"))
		assert.True(t, ended)
		assert.Equal(t, 10*time.Second, time.Since(began))
		assert.Empty(t, r.read())
		r.stop()
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
		sets <- []*v1.Pod{testPod("a", "a")}
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
