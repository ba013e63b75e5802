package podconfig_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// scripted is a source that delivers what the test sends it, and ends with the
// errors that the test sends it.
type scripted struct {
	name string
	sets chan []*v1.Pod
	errs chan error
}

func newScripted(name string) *scripted {
	return &scripted{name, make(chan []*v1.Pod), make(chan error)}
}

func (s *scripted) Name() string { return s.name }

func (s *scripted) Run(ctx context.Context, sink podconfig.Sink) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case pods := <-s.sets:
			sink.Set(pods)
		case err := <-s.errs:
			return err
		}
	}
}

// sourceFunc is a source of one function.
type sourceFunc struct {
	name string
	run  func(ctx context.Context, sink podconfig.Sink) error
}

func (s sourceFunc) Name() string                                       { return s.name }
func (s sourceFunc) Run(ctx context.Context, sink podconfig.Sink) error { return s.run(ctx, sink) }

func testPod(uid, name string, change ...func(*v1.Pod)) *v1.Pod {
	return testpod.With(testpod.New(name, testpod.UID(types.UID(uid)), testpod.Containers("c")), change...)
}

func image(name string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Spec.Containers = []v1.Container{{Name: "c", Image: name}} }
}

func deleted(p *v1.Pod) {
	now := metav1.Unix(1, 0)
	p.DeletionTimestamp = &now
}

// rig runs a mux over scripted sources inside a synctest bubble.
type rig struct {
	t       *testing.T
	mux     *podconfig.Mux
	sources []*scripted
	stop    func()

	mu       sync.Mutex
	rejected []string // messages of events
}

// event is the hook of the mux.
func (r *rig) event(e runtime.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	assert.Equal(r.t, v1.EventTypeWarning, e.Type)
	assert.Equal(r.t, "FailedValidation", e.Reason)
	r.rejected = append(r.rejected, e.Message)
}

func newRig(t *testing.T, names ...string) *rig {
	return newRigWith(t, podconfig.Options{}, names...)
}

func newRigWith(t *testing.T, opts podconfig.Options, names ...string) *rig {
	r := &rig{t: t}
	for _, n := range names {
		s := newScripted(n)
		r.sources = append(r.sources, s)
		opts.Sources = append(opts.Sources, s)
	}
	opts.Event = r.event
	mux, err := podconfig.New(opts)
	require.NoError(t, err)
	r.mux = mux
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- mux.Run(ctx) }()
	r.stop = func() {
		cancel()
		require.NoError(t, <-done)
		_, open := <-mux.Changes()
		require.False(t, open)
	}
	return r
}

func (r *rig) set(source int, pods ...*v1.Pod) {
	r.sources[source].sets <- pods
	synctest.Wait()
}

// read takes all changes that there are, each in one line.
func (r *rig) read() []string {
	var lines []string
	for {
		synctest.Wait()
		select {
		case c := <-r.mux.Changes():
			line := c.Op.String() + " " + c.Source
			for _, p := range c.Pods {
				line += " " + p.Name + "/" + string(p.UID)
			}
			lines = append(lines, line)
		default:
			return lines
		}
	}
}

func TestMuxScenarios(t *testing.T) {
	t.Parallel()
	for name, play := range map[string]func(r *rig){
		"all operations in one batch": func(r *rig) {
			r.set(0, testPod("1", "a"), testPod("2", "b"), testPod("3", "c"), testPod("4", "d"))
			assert.Equal(r.t, []string{"ADD file a/1 b/2 c/3 d/4"}, r.read())
			r.set(0, testPod("5", "e"), testPod("1", "a", image("x")), testPod("2", "b", deleted),
				testPod("4", "d", testpod.Phase(v1.PodRunning)))
			assert.Equal(r.t, []string{"REMOVE file c/3", "ADD file e/5", "UPDATE file a/1", "DELETE file b/2",
				"RECONCILE file d/4"}, r.read())
			assert.Empty(r.t, r.read())
		},
		"nothing changes": func(r *rig) {
			r.set(0, testPod("1", "a", image("x")))
			r.read()
			r.set(0, testPod("1", "a", image("x")))
			assert.Empty(r.t, r.read())
		},
		"an empty first snapshot": func(r *rig) {
			r.set(0)
			assert.False(r.t, r.mux.SourcesReady())
			assert.Equal(r.t, []string{"ADD file"}, r.read())
			assert.False(r.t, r.mux.SourcesReady(), "http was not seen")
			r.set(1)
			assert.False(r.t, r.mux.SourcesReady(), "the reader has not received it yet")
			assert.Equal(r.t, []string{"ADD http"}, r.read())
			assert.True(r.t, r.mux.SourcesReady())
			r.set(1)
			assert.Empty(r.t, r.read())
		},
		"seen only when all of the batch was read": func(r *rig) {
			r.set(0, testPod("1", "a"))
			r.set(1, testPod("2", "b"))
			<-r.mux.Changes()
			synctest.Wait()
			assert.False(r.t, r.mux.SourcesReady())
			<-r.mux.Changes()
			synctest.Wait()
			assert.True(r.t, r.mux.SourcesReady())
		},
		"a slow reader sees the last state": func(r *rig) {
			for i := range 100 {
				r.set(0, testPod("1", "a", image(fmt.Sprint(i))), testPod(fmt.Sprint("x", i), fmt.Sprint("x", i)))
			}
			assert.Equal(r.t, []string{"ADD file a/1 x99/x99"}, r.read())
		},
		"a batch that began is finished": func(r *rig) {
			r.set(0, testPod("1", "a"), testPod("2", "b"))
			r.read()
			r.set(0, testPod("1", "a", image("x")))
			assert.Equal(r.t, podconfig.Remove, (<-r.mux.Changes()).Op)
			r.set(0, testPod("3", "c"))
			assert.Equal(r.t, []string{"UPDATE file a/1", "REMOVE file a/1", "ADD file c/3"}, r.read())
		},
		"a pod gets another UID": func(r *rig) {
			r.set(0, testPod("1", "a"))
			r.read()
			r.set(0, testPod("2", "a"))
			assert.Equal(r.t, []string{"REMOVE file a/1", "ADD file a/2"}, r.read())
		},
		"a UID gets another name": func(r *rig) {
			r.set(0, testPod("1", "a"))
			r.read()
			r.set(0, testPod("1", "b"))
			assert.Equal(r.t, []string{"REMOVE file a/1", "ADD file b/1"}, r.read())
		},
		"two sources want a name": func(r *rig) {
			r.set(1, testPod("2", "a"))
			assert.Equal(r.t, []string{"ADD http a/2"}, r.read())
			r.set(0, testPod("1", "a"), testPod("3", "c"))
			assert.Equal(r.t, []string{"ADD file c/3"}, r.read(), "the first one keeps it")
			r.set(0, testPod("1", "a"), testPod("3", "c"))
			assert.Equal(r.t,
				[]string{
					`pod default/a(1) of source "file" waits: pod default/a(2) of source "http" has the same name, and keeps it until it is removed`},
				r.rejected, "reported once")
			r.set(1)
			assert.Equal(r.t, []string{"REMOVE http a/2", "ADD file a/1"}, r.read())
			r.set(1, testPod("2", "a"))
			assert.Empty(r.t, r.read())
			require.Len(r.t, r.rejected, 2)
			assert.Equal(r.t,
				`pod default/a(2) of source "http" waits: pod default/a(1) of source "file" has the same name, and keeps it until it is removed`, r.rejected[1])
		},
		"a pod passes from one source to another": func(r *rig) {
			r.set(0, testPod("1", "a"))
			r.set(1, testPod("1", "a"))
			assert.Equal(r.t, []string{"ADD file a/1", "ADD http"}, r.read())
			r.set(0)
			assert.Equal(r.t, []string{"UPDATE http a/1"}, r.read(), "it is not ended")
		},
		"two sources want a UID": func(r *rig) {
			r.set(0, testPod("1", "a"))
			r.set(1, testPod("1", "b"))
			assert.Equal(r.t, []string{"ADD file a/1", "ADD http"}, r.read())
			require.Len(r.t, r.rejected, 1)
			assert.Contains(r.t, r.rejected[0], "has the same UID")
			r.set(0)
			assert.Equal(r.t, []string{"REMOVE file a/1", "ADD http b/1"}, r.read())
		},
		"duplicates within one source": func(r *rig) {
			r.set(0, testPod("1", "a"), testPod("2", "a"), testPod("1", "c"), testPod("", "d"), nil)
			assert.Equal(r.t, []string{"ADD file a/1"}, r.read())
			require.Len(r.t, r.rejected, 3)
			assert.Equal(r.t,
				`pod default/c(1) of source "file" waits: pod default/a(1) of the same source has the same UID; remove one of them, or give it another UID`, r.rejected[0])
			assert.Equal(r.t, `pod default/d() of source "file" has no name, no namespace or no UID`, r.rejected[1])
			assert.Equal(r.t,
				`pod default/a(2) of source "file" waits: pod default/a(1) of the same source has the same name; remove one of them, or give it another name`, r.rejected[2])
			r.set(0, testPod("2", "a"), testPod("1", "a"), testPod("1", "c"), testPod("", "d"))
			assert.Empty(r.t, r.read(), "the first one keeps it")
			assert.Len(r.t, r.rejected, 3, "reported once")
			r.set(0, testPod("2", "a"))
			assert.Equal(r.t, []string{"REMOVE file a/1", "ADD file a/2"}, r.read())
		},
		"the same pod twice in a snapshot": func(r *rig) {
			one, two := testPod("1", "a"), testPod("2", "b")
			r.set(0, one, two)
			r.read()
			r.set(0, two, two)
			assert.Equal(r.t, []string{"REMOVE file a/1"}, r.read())
			assert.Len(r.t, r.rejected, 1)
			r.set(0, one, two)
			assert.Equal(r.t, []string{"ADD file a/1"}, r.read())
		},
		"deletion goes on": func(r *rig) {
			r.set(0, testPod("1", "a"))
			r.read()
			r.set(0, testPod("1", "a", deleted))
			assert.Equal(r.t, []string{"DELETE file a/1"}, r.read())
			grace := int64(1)
			r.set(0, testPod("1", "a", deleted, func(p *v1.Pod) { p.DeletionGracePeriodSeconds = &grace }))
			assert.Equal(r.t, []string{"DELETE file a/1"}, r.read())
			r.set(0)
			assert.Equal(r.t, []string{"REMOVE file a/1"}, r.read())
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, "file", "http")
				play(r)
				r.stop()
			})
		})
	}
}

func TestMuxAnnotations(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "file")
		given := testPod("1", "a", func(p *v1.Pod) { p.Annotations = map[string]string{"k": "v"} })
		first := time.Now().Format(time.RFC3339Nano)
		r.set(0, given)
		pod := (<-r.mux.Changes()).Pods[0]
		assert.Equal(t, map[string]string{"k": "v", podspec.AnnotationConfigSource: "file",
			podspec.AnnotationConfigSeen: first}, pod.Annotations)
		assert.Equal(t, map[string]string{"k": "v"}, given.Annotations, "the source's pod is not touched")

		time.Sleep(time.Hour)
		r.set(0, testPod("1", "a", image("x")))
		pod = (<-r.mux.Changes()).Pods[0]
		assert.Equal(t, map[string]string{podspec.AnnotationConfigSource: "file", podspec.AnnotationConfigSeen: first},
			pod.Annotations)
		r.stop()
	})
}

func TestMuxRestartsFailedSource(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "file", "http")
		r.set(0, testPod("1", "a"))
		r.read()
		bad := r.sources[0]
		wait := time.Second
		for range 10 {
			bad.errs <- errors.New("no")
			began := time.Now()
			r.set(1, testPod("2", "b")) // the other goes on
			bad.sets <- []*v1.Pod{testPod("1", "a")}
			assert.Equal(t, wait, time.Since(began))
			wait = min(2*wait, time.Minute)
		}
		time.Sleep(time.Minute) // of health
		bad.errs <- errors.New("no")
		began := time.Now()
		bad.sets <- nil
		assert.Equal(t, time.Second, time.Since(began))
		synctest.Wait()
		assert.Equal(t, []string{"REMOVE file a/1", "ADD http b/2"}, r.read())
		r.stop()
	})
}

func TestMuxSourceEnds(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		runs int // that happen within ten seconds
		run  func(ctx context.Context, sink podconfig.Sink) error
	}{
		"complete": {1, func(_ context.Context, sink podconfig.Sink) error { sink.Set(nil); return nil }},
		"silent":   {4, func(context.Context, podconfig.Sink) error { return nil }},
		"panics":   {4, func(context.Context, podconfig.Sink) error { panic("x") }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				runs := 0
				var late podconfig.Sink
				m, err := podconfig.New(podconfig.Options{Sources: []podconfig.Source{sourceFunc{"func",
					func(ctx context.Context, sink podconfig.Sink) error {
						runs++
						late = sink
						return tc.run(ctx, sink)
					}}}})
				require.NoError(t, err)
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				changes := 0
				read := make(chan struct{})
				go func() {
					defer close(read)
					for range m.Changes() {
						changes++
						synctest.Wait()
						late.Set([]*v1.Pod{testPod("1", "a")}) // Run has returned
					}
				}()
				require.NoError(t, m.Run(ctx))
				<-read
				assert.Equal(t, tc.runs, runs)
				assert.LessOrEqual(t, changes, 1)
				require.ErrorIs(t, m.Run(ctx), runtime.ErrAlreadyRunning)
			})
		})
	}
}

func TestNewMuxErrors(t *testing.T) {
	t.Parallel()
	_, err := podconfig.New(podconfig.Options{Sources: []podconfig.Source{nil, newScripted(""), newScripted("a"),
		newScripted("a")}})
	require.EqualError(t, err, "podconfig: source 0: the source is nil\nsource 1: the source has no name\n"+
		`source 3: there is another source of the same name "a"`)
	m, err := podconfig.New(podconfig.Options{})
	require.NoError(t, err)
	assert.True(t, m.SourcesReady())
}

func TestOpString(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "Op(0)", podconfig.Op(0).String())
	assert.Equal(t, "RECONCILE", podconfig.Reconcile.String())
}

// Options.StaticUID decides UIDs for each source by its name, also through MapPods; without it the derived UID stays.
func TestMuxStaticUID(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := func(name string) podconfig.Source {
			return podconfig.MapPods(sourceFunc{name, func(ctx context.Context, sink podconfig.Sink) error {
				pod := testPod("derived", "pod-"+name)
				pod.UID = sink.StaticUID(ctx, podconfig.StaticPod{Pod: pod, Manifest: "hash"})
				sink.Set([]*v1.Pod{pod})
				return nil
			}}, func(pod *v1.Pod) *v1.Pod { return pod })
		}
		first := func(opts podconfig.Options) map[string]types.UID {
			mux, err := podconfig.New(opts)
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			done, got := make(chan error, 1), map[string]types.UID{}
			go func() { done <- mux.Run(ctx) }()
			for len(got) < len(opts.Sources) {
				for _, pod := range (<-mux.Changes()).Pods {
					got[pod.Name] = pod.UID
				}
			}
			cancel()
			require.NoError(t, <-done)
			return got
		}
		decide := func(_ context.Context, pod podconfig.StaticPod) types.UID {
			return types.UID(pod.Source + " " + pod.Manifest)
		}
		assert.Equal(t, map[string]types.UID{"pod-a": "a hash", "pod-b": "b hash"},
			first(podconfig.Options{Sources: []podconfig.Source{source("a"), source("b")}, StaticUID: decide}))
		assert.Equal(t, map[string]types.UID{"pod-a": "derived"},
			first(podconfig.Options{Sources: []podconfig.Source{source("a")}}))
	})
}
