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

	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/runtime"
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
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), Name: name, Namespace: "default"}}
	for _, f := range change {
		f(pod)
	}
	return pod
}

func image(name string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Spec.Containers = []v1.Container{{Name: "c", Image: name}} }
}

func phase(ph v1.PodPhase) func(*v1.Pod) { return func(p *v1.Pod) { p.Status.Phase = ph } }

func deleted(p *v1.Pod) {
	now := metav1.Unix(1, 0)
	p.DeletionTimestamp = &now
}

// bench runs a mux over scripted sources inside a synctest bubble.
type bench struct {
	t       *testing.T
	mux     *podconfig.Mux
	sources []*scripted
	stop    func()

	mu       sync.Mutex
	rejected []string // messages of events
}

// event is the hook of the mux.
func (b *bench) event(e runtime.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	assert.Equal(b.t, v1.EventTypeWarning, e.Type)
	assert.Equal(b.t, "FailedValidation", e.Reason)
	b.rejected = append(b.rejected, e.Message)
}

func newBench(t *testing.T, names ...string) *bench {
	return newBenchOf(t, podconfig.Options{}, names...)
}

func newBenchOf(t *testing.T, opts podconfig.Options, names ...string) *bench {
	b := &bench{t: t}
	for _, n := range names {
		s := newScripted(n)
		b.sources = append(b.sources, s)
		opts.Sources = append(opts.Sources, s)
	}
	opts.Event = b.event
	mux, err := podconfig.New(opts)
	require.NoError(t, err)
	b.mux = mux
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- mux.Run(ctx) }()
	b.stop = func() {
		cancel()
		require.NoError(t, <-done)
		_, open := <-mux.Changes()
		require.False(t, open)
	}
	return b
}

func (b *bench) set(source int, pods ...*v1.Pod) {
	b.sources[source].sets <- pods
	synctest.Wait()
}

// read takes all changes that there are, each in one line.
func (b *bench) read() []string {
	var lines []string
	for {
		synctest.Wait()
		select {
		case c := <-b.mux.Changes():
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
	for name, play := range map[string]func(b *bench){
		"all operations in one batch": func(b *bench) {
			b.set(0, testPod("1", "a"), testPod("2", "b"), testPod("3", "c"), testPod("4", "d"))
			assert.Equal(b.t, []string{"ADD file a/1 b/2 c/3 d/4"}, b.read())
			b.set(0, testPod("5", "e"), testPod("1", "a", image("x")), testPod("2", "b", deleted), testPod("4", "d", phase(v1.PodRunning)))
			assert.Equal(b.t, []string{"REMOVE file c/3", "ADD file e/5", "UPDATE file a/1", "DELETE file b/2", "RECONCILE file d/4"}, b.read())
			assert.Empty(b.t, b.read())
		},
		"nothing changes": func(b *bench) {
			b.set(0, testPod("1", "a", image("x")))
			b.read()
			b.set(0, testPod("1", "a", image("x")))
			assert.Empty(b.t, b.read())
		},
		"an empty first snapshot": func(b *bench) {
			b.set(0)
			assert.False(b.t, b.mux.AllSeen())
			assert.Equal(b.t, []string{"ADD file"}, b.read())
			assert.False(b.t, b.mux.AllSeen(), "http was not seen")
			b.set(1)
			assert.False(b.t, b.mux.AllSeen(), "the reader does not know yet")
			assert.Equal(b.t, []string{"ADD http"}, b.read())
			assert.True(b.t, b.mux.AllSeen())
			b.set(1)
			assert.Empty(b.t, b.read())
		},
		"seen only when all of the batch was read": func(b *bench) {
			b.set(0, testPod("1", "a"))
			b.set(1, testPod("2", "b"))
			<-b.mux.Changes()
			synctest.Wait()
			assert.False(b.t, b.mux.AllSeen())
			<-b.mux.Changes()
			synctest.Wait()
			assert.True(b.t, b.mux.AllSeen())
		},
		"a slow reader sees the last state": func(b *bench) {
			for i := range 100 {
				b.set(0, testPod("1", "a", image(fmt.Sprint(i))), testPod(fmt.Sprint("x", i), fmt.Sprint("x", i)))
			}
			assert.Equal(b.t, []string{"ADD file a/1 x99/x99"}, b.read())
		},
		"a batch that began is finished": func(b *bench) {
			b.set(0, testPod("1", "a"), testPod("2", "b"))
			b.read()
			b.set(0, testPod("1", "a", image("x")))
			assert.Equal(b.t, podconfig.Remove, (<-b.mux.Changes()).Op)
			b.set(0, testPod("3", "c"))
			assert.Equal(b.t, []string{"UPDATE file a/1", "REMOVE file a/1", "ADD file c/3"}, b.read())
		},
		"a pod gets another UID": func(b *bench) {
			b.set(0, testPod("1", "a"))
			b.read()
			b.set(0, testPod("2", "a"))
			assert.Equal(b.t, []string{"REMOVE file a/1", "ADD file a/2"}, b.read())
		},
		"a UID gets another name": func(b *bench) {
			b.set(0, testPod("1", "a"))
			b.read()
			b.set(0, testPod("1", "b"))
			assert.Equal(b.t, []string{"REMOVE file a/1", "ADD file b/1"}, b.read())
		},
		"two sources want a name": func(b *bench) {
			b.set(1, testPod("2", "a"))
			assert.Equal(b.t, []string{"ADD http a/2"}, b.read())
			b.set(0, testPod("1", "a"), testPod("3", "c"))
			assert.Equal(b.t, []string{"ADD file c/3"}, b.read(), "who had it keeps it")
			b.set(0, testPod("1", "a"), testPod("3", "c"))
			assert.Equal(b.t, []string{`pod default/a(1) of source "file" waits: pod default/a(2) of source "http" has the same name, and keeps it until it is removed`},
				b.rejected, "reported once")
			b.set(1)
			assert.Equal(b.t, []string{"REMOVE http a/2", "ADD file a/1"}, b.read())
			b.set(1, testPod("2", "a"))
			assert.Empty(b.t, b.read())
			require.Len(b.t, b.rejected, 2)
			assert.Equal(b.t, `pod default/a(2) of source "http" waits: pod default/a(1) of source "file" has the same name, and keeps it until it is removed`, b.rejected[1])
		},
		"a pod passes from one source to another": func(b *bench) {
			b.set(0, testPod("1", "a"))
			b.set(1, testPod("1", "a"))
			assert.Equal(b.t, []string{"ADD file a/1", "ADD http"}, b.read())
			b.set(0)
			assert.Equal(b.t, []string{"UPDATE http a/1"}, b.read(), "it is not ended")
		},
		"two sources want a UID": func(b *bench) {
			b.set(0, testPod("1", "a"))
			b.set(1, testPod("1", "b"))
			assert.Equal(b.t, []string{"ADD file a/1", "ADD http"}, b.read())
			require.Len(b.t, b.rejected, 1)
			assert.Contains(b.t, b.rejected[0], "has the same UID")
			b.set(0)
			assert.Equal(b.t, []string{"REMOVE file a/1", "ADD http b/1"}, b.read())
		},
		"duplicates within one source": func(b *bench) {
			b.set(0, testPod("1", "a"), testPod("2", "a"), testPod("1", "c"), testPod("", "d"), nil)
			assert.Equal(b.t, []string{"ADD file a/1"}, b.read())
			require.Len(b.t, b.rejected, 3)
			assert.Equal(b.t, `pod default/c(1) of source "file" waits: pod default/a(1) of the same source has the same UID; remove one of them, or give it another UID`, b.rejected[0])
			assert.Equal(b.t, `pod default/d() of source "file" has no name, no namespace or no UID`, b.rejected[1])
			assert.Equal(b.t, `pod default/a(2) of source "file" waits: pod default/a(1) of the same source has the same name; remove one of them, or give it another name`, b.rejected[2])
			b.set(0, testPod("2", "a"), testPod("1", "a"), testPod("1", "c"), testPod("", "d"))
			assert.Empty(b.t, b.read(), "who had the name keeps it")
			assert.Len(b.t, b.rejected, 3, "reported once")
			b.set(0, testPod("2", "a"))
			assert.Equal(b.t, []string{"REMOVE file a/1", "ADD file a/2"}, b.read())
		},
		"the same pod twice in a snapshot": func(b *bench) {
			one, two := testPod("1", "a"), testPod("2", "b")
			b.set(0, one, two)
			b.read()
			b.set(0, two, two)
			assert.Equal(b.t, []string{"REMOVE file a/1"}, b.read())
			assert.Len(b.t, b.rejected, 1)
			b.set(0, one, two)
			assert.Equal(b.t, []string{"ADD file a/1"}, b.read())
		},
		"deletion goes on": func(b *bench) {
			b.set(0, testPod("1", "a"))
			b.read()
			b.set(0, testPod("1", "a", deleted))
			assert.Equal(b.t, []string{"DELETE file a/1"}, b.read())
			grace := int64(1)
			b.set(0, testPod("1", "a", deleted, func(p *v1.Pod) { p.DeletionGracePeriodSeconds = &grace }))
			assert.Equal(b.t, []string{"DELETE file a/1"}, b.read())
			b.set(0)
			assert.Equal(b.t, []string{"REMOVE file a/1"}, b.read())
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, "file", "http")
				play(b)
				b.stop()
			})
		})
	}
}

func TestMuxAnnotations(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, "file")
		given := testPod("1", "a", func(p *v1.Pod) { p.Annotations = map[string]string{"k": "v"} })
		first := time.Now().Format(time.RFC3339Nano)
		b.set(0, given)
		pod := (<-b.mux.Changes()).Pods[0]
		assert.Equal(t, map[string]string{"k": "v", runtime.AnnotationConfigSource: "file", runtime.AnnotationConfigSeen: first}, pod.Annotations)
		assert.Equal(t, map[string]string{"k": "v"}, given.Annotations, "the source's pod is not touched")

		time.Sleep(time.Hour)
		b.set(0, testPod("1", "a", image("x")))
		pod = (<-b.mux.Changes()).Pods[0]
		assert.Equal(t, map[string]string{runtime.AnnotationConfigSource: "file", runtime.AnnotationConfigSeen: first}, pod.Annotations)
		b.stop()
	})
}

func TestMuxRestartsFailedSource(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, "file", "http")
		b.set(0, testPod("1", "a"))
		b.read()
		bad := b.sources[0]
		wait := time.Second
		for range 10 {
			bad.errs <- errors.New("no")
			began := time.Now()
			b.set(1, testPod("2", "b")) // the other goes on
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
		assert.Equal(t, []string{"REMOVE file a/1", "ADD http b/2"}, b.read())
		b.stop()
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
				m, err := podconfig.New(podconfig.Options{Sources: []podconfig.Source{sourceFunc{"func", func(ctx context.Context, sink podconfig.Sink) error {
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
	_, err := podconfig.New(podconfig.Options{Sources: []podconfig.Source{nil, newScripted(""), newScripted("a"), newScripted("a")}})
	require.EqualError(t, err, "podconfig: source 0: the source is nil\nsource 1: the source has no name\n"+
		`source 3: there is another source of the same name "a"`)
	m, err := podconfig.New(podconfig.Options{})
	require.NoError(t, err)
	assert.True(t, m.AllSeen())
}

func TestOpString(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "Op(0)", podconfig.Op(0).String())
	assert.Equal(t, "RECONCILE", podconfig.Reconcile.String())
}
