package podconfig_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// from makes a pod one that came through the stream in an earlier life.
func from(source string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Annotations = map[string]string{runtime.AnnotationConfigSource: source, runtime.AnnotationConfigSeen: "2020-01-01T00:00:00Z"}
	}
}

func restoring(pods ...*v1.Pod) podconfig.Options {
	return podconfig.Options{Restore: func(context.Context) []*v1.Pod { return pods }}
}

func TestMuxRestore(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		restored []*v1.Pod
		play     func(b *bench)
	}{
		"then the source answers": {
			[]*v1.Pod{testPod("1", "a", from("file")), testPod("2", "b", from("file")), testPod("3", "c", from("file")), testPod("4", "d", from("http"))},
			func(b *bench) {
				assert.Equal(b.t, []string{"RESTORE file a/1 b/2 c/3", "RESTORE http d/4"}, b.read())
				assert.False(b.t, b.mux.AllSeen())
				b.set(0, testPod("1", "a"), testPod("2", "b", image("x")), testPod("5", "e"))
				assert.Equal(b.t, []string{"REMOVE file c/3", "ADD file e/5", "UPDATE file b/2"}, b.read(), "of the same nothing is said")
				assert.False(b.t, b.mux.AllSeen(), "http was not heard")
				b.set(1, testPod("4", "d"))
				assert.Equal(b.t, []string{"ADD http"}, b.read())
				assert.True(b.t, b.mux.AllSeen())
			},
		},
		"a source that wants none": {
			[]*v1.Pod{testPod("1", "a", from("file"))},
			func(b *bench) {
				assert.Equal(b.t, []string{"RESTORE file a/1"}, b.read())
				b.set(0)
				assert.Equal(b.t, []string{"REMOVE file a/1"}, b.read())
				assert.Equal(b.t, []podconfig.SourceState{{"file", true}, {"http", false}}, b.mux.Sources())
			},
		},
		"the source is faster than the reader": {
			[]*v1.Pod{testPod("1", "a", from("file")), testPod("2", "b", from("file")), testPod("3", "c", from("http"))},
			func(b *bench) {
				b.set(0, testPod("1", "a"))
				assert.Equal(b.t, []string{"RESTORE http c/3", "ADD file a/1"}, b.read())
				assert.Equal(b.t, []podconfig.SourceState{{"file", true}, {"http", false}}, b.mux.Sources())
			},
		},
		"restored pods hold their names until their source answers": {
			[]*v1.Pod{testPod("1", "a", from("http"))},
			func(b *bench) {
				b.set(0, testPod("2", "a"))
				assert.Equal(b.t, []string{"RESTORE http a/1", "ADD file"}, b.read())
				require.Len(b.t, b.rejected, 1)
				assert.Equal(b.t, `pod default/a(2) of source "file" waits: pod default/a(1) of source "http" has the same name, and keeps it until it is removed`, b.rejected[0])
				b.set(1)
				assert.Equal(b.t, []string{"REMOVE http a/1", "ADD file a/2"}, b.read())
			},
		},
		"the pod has a new UID": {
			[]*v1.Pod{testPod("1", "a", from("file"))},
			func(b *bench) {
				b.read()
				b.set(0, testPod("2", "a"))
				assert.Equal(b.t, []string{"REMOVE file a/1", "ADD file a/2"}, b.read())
			},
		},
		"a pod that was ending": {
			[]*v1.Pod{testPod("1", "a", from("file"), deleted)},
			func(b *bench) {
				assert.Equal(b.t, []string{"RESTORE file a/1"}, b.read())
				b.set(0, testPod("1", "a", deleted))
				assert.Equal(b.t, []string{"ADD file"}, b.read())
			},
		},
		"what is no pod": {
			[]*v1.Pod{nil, testPod("", "a", from("file")), testPod("1", "b", from("file")), testPod("1", "c", from("file"))},
			func(b *bench) {
				assert.Equal(b.t, []string{"RESTORE file b/1"}, b.read())
				assert.Len(b.t, b.rejected, 2)
			},
		},
		"nothing": {nil, func(b *bench) { assert.Empty(b.t, b.read()) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBenchOf(t, restoring(tc.restored...), "file", "http")
				synctest.Wait()
				tc.play(b)
				b.stop()
			})
		})
	}
}

func TestRestoreLeavesOutUnknownSources(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var lines []string
		opts := restoring(testPod("1", "a", from("gone")), testPod("2", "b"), testPod("3", "c", from("file")))
		opts.Logger = funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{})
		b := newBenchOf(t, opts, "file")
		assert.Equal(t, []string{"RESTORE file c/3"}, b.read())
		b.stop()
		assert.Equal(t, []string{
			`"level"=0 "msg"="Pod is not restored, because the source that it came from is not configured any more" "pod"="default/a(1)" "source"="gone"`,
			`"level"=0 "msg"="Pod is not restored, because the source that it came from is not configured any more" "pod"="default/b(2)" "source"=""`,
		}, lines)
	})
}

// TestRestoreOfWhatWasEncoded has a pod go through JSON, as through a file, and
// come back as the same.
func TestRestoreOfWhatWasEncoded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		whole := func() *v1.Pod {
			return testPod("1", "a", image("x"), phase(v1.PodPending), func(p *v1.Pod) {
				p.Labels = map[string]string{}
				p.Annotations = map[string]string{"k": "v", runtime.AnnotationConfigHash: "1"}
				p.Spec.NodeSelector = map[string]string{}
				p.Spec.Tolerations = []v1.Toleration{}
				p.Spec.Containers[0].Resources.Limits = v1.ResourceList{"cpu": resource.MustParse("1000m"), "memory": resource.MustParse("1024Mi")}
			})
		}
		life := func(opts podconfig.Options) []podconfig.Change {
			b := newBenchOf(t, opts, "file")
			synctest.Wait()
			var changes []podconfig.Change
			for range 2 {
				select {
				case c := <-b.mux.Changes():
					changes = append(changes, c)
				default:
					b.set(0, whole())
				}
				synctest.Wait()
			}
			b.stop()
			return changes
		}
		first := life(podconfig.Options{})
		require.Len(t, first, 1)
		data, err := json.Marshal(first[0].Pods[0])
		require.NoError(t, err)
		kept := &v1.Pod{}
		require.NoError(t, json.Unmarshal(data, kept))

		time.Sleep(time.Hour)
		second := life(restoring(kept))
		require.NotEmpty(t, second)
		assert.Equal(t, podconfig.Restore, second[0].Op)
		assert.Equal(t, first[0].Pods[0].Annotations, second[0].Pods[0].Annotations, "it was first seen in the life before")
		for _, c := range second[1:] {
			assert.Empty(t, c.Pods, "the source wants the same")
		}
	})
}

func TestRestoreComesBeforeTheSources(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var order []string
		m, err := podconfig.New(podconfig.Options{
			Restore: func(context.Context) []*v1.Pod {
				time.Sleep(time.Second) // of a slow disk
				order = append(order, "restore")
				return []*v1.Pod{testPod("1", "a", from("s")), testPod("2", "b", from("late"))}
			},
			Sources: []podconfig.Source{sourceFunc{"s", func(context.Context, podconfig.Sink) error {
				order = append(order, "run")
				return fmt.Errorf("no")
			}}},
		})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		done := make(chan error)
		go func() { done <- m.Run(ctx) }()
		synctest.Wait()
		require.NoError(t, m.Add(newScripted("late")), "while the disk is read")
		c := <-m.Changes()
		assert.Equal(t, podconfig.Change{Op: podconfig.Restore, Source: "s", Pods: c.Pods}, c)
		assert.Equal(t, "late", (<-m.Changes()).Source)
		require.NoError(t, <-done)
		assert.Equal(t, []string{"restore", "run"}, order)
	})
}

// remembering is a source that names what was restored of it.
type remembering struct{ restored []*v1.Pod }

func (r *remembering) Name() string            { return "file" }
func (r *remembering) Restored(pods []*v1.Pod) { r.restored = pods }
func (r *remembering) Run(ctx context.Context, sink podconfig.Sink) error {
	sink.Set(r.restored)
	<-ctx.Done()
	return nil
}

func TestASourceLearnsWhatWasRestored(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &remembering{}
		opts := restoring(testPod("1", "a", from("file")), nil, testPod("2", "b", from("http")))
		opts.Sources = []podconfig.Source{r}
		m, err := podconfig.New(opts)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- m.Run(ctx) }()
		var told []string
		for c := range m.Changes() {
			told = append(told, fmt.Sprint(c.Op, len(c.Pods)))
			if c.Op == podconfig.Add {
				break
			}
		}
		assert.Equal(t, []string{"RESTORE 1", "ADD 0"}, told, "it is the same pod")
		require.Len(t, r.restored, 1)
		assert.Equal(t, "a", r.restored[0].Name)
		cancel()
		require.NoError(t, <-done)
	})
}
