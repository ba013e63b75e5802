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

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// from makes a pod one that came through the stream in an earlier life.
func from(source string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Annotations = map[string]string{podspec.AnnotationConfigSource: source,
			podspec.AnnotationConfigSeen: "2020-01-01T00:00:00Z"}
	}
}

func restoring(pods ...*v1.Pod) podconfig.Options {
	return podconfig.Options{Restore: func(context.Context) []*v1.Pod { return pods }}
}

func TestMuxRestore(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		restored []*v1.Pod
		play     func(r *rig)
	}{
		"then the source answers": {
			[]*v1.Pod{testPod("1", "a", from("file")), testPod("2", "b", from("file")), testPod("3", "c", from("file")),
				testPod("4", "d", from("http"))},
			func(r *rig) {
				assert.Equal(r.t, []string{"RESTORE file a/1 b/2 c/3", "RESTORE http d/4"}, r.read())
				assert.False(r.t, r.mux.SourcesReady())
				r.set(0, testPod("1", "a"), testPod("2", "b", image("x")), testPod("5", "e"))
				assert.Equal(r.t, []string{"REMOVE file c/3", "ADD file e/5", "UPDATE file b/2"}, r.read(),
					"no change for the same pod")
				assert.False(r.t, r.mux.SourcesReady(), "http has delivered nothing")
				r.set(1, testPod("4", "d"))
				assert.Equal(r.t, []string{"ADD http"}, r.read())
				assert.True(r.t, r.mux.SourcesReady())
			},
		},
		"a source that wants none": {
			[]*v1.Pod{testPod("1", "a", from("file"))},
			func(r *rig) {
				assert.Equal(r.t, []string{"RESTORE file a/1"}, r.read())
				r.set(0)
				assert.Equal(r.t, []string{"REMOVE file a/1"}, r.read())
				assert.Equal(r.t, []podconfig.SourceState{{Name: "file", Seen: true}, {Name: "http", Seen: false}},
					r.mux.Sources())
			},
		},
		"the source is faster than the reader": {
			[]*v1.Pod{testPod("1", "a", from("file")), testPod("2", "b", from("file")),
				testPod("3", "c", from("http"))},
			func(r *rig) {
				r.set(0, testPod("1", "a"))
				assert.Equal(r.t, []string{"RESTORE http c/3", "ADD file a/1"}, r.read())
				assert.Equal(r.t, []podconfig.SourceState{{Name: "file", Seen: true}, {Name: "http", Seen: false}},
					r.mux.Sources())
			},
		},
		"the source has it with something that is not valid": {
			[]*v1.Pod{testPod("1", "a", from("file"))},
			func(r *rig) {
				r.set(0, testPod("1", "a", func(p *v1.Pod) { p.Spec.Containers[0].Name = "../c" }))
				assert.Equal(r.t, []string{"ADD file a/1"}, r.read(), "as it was")
				assert.True(r.t, r.mux.Sources()[0].Seen)
			},
		},
		"restored pods hold their names until their source answers": {
			[]*v1.Pod{testPod("1", "a", from("http"))},
			func(r *rig) {
				r.set(0, testPod("2", "a"))
				assert.Equal(r.t, []string{"RESTORE http a/1", "ADD file"}, r.read())
				require.Len(r.t, r.rejected, 1)
				assert.Equal(r.t,
					`pod default/a(2) of source "file" waits: pod default/a(1) of source "http" has the same name, and keeps it until it is removed`, r.rejected[0])
				r.set(1)
				assert.Equal(r.t, []string{"REMOVE http a/1", "ADD file a/2"}, r.read())
			},
		},
		"the pod has a new UID": {
			[]*v1.Pod{testPod("1", "a", from("file"))},
			func(r *rig) {
				r.read()
				r.set(0, testPod("2", "a"))
				assert.Equal(r.t, []string{"REMOVE file a/1", "ADD file a/2"}, r.read())
			},
		},
		"a pod that was ending": {
			[]*v1.Pod{testPod("1", "a", from("file"), deleted)},
			func(r *rig) {
				assert.Equal(r.t, []string{"RESTORE file a/1"}, r.read())
				r.set(0, testPod("1", "a", deleted))
				assert.Equal(r.t, []string{"ADD file"}, r.read())
			},
		},
		"what is no pod": {
			[]*v1.Pod{nil, testPod("", "a", from("file")), testPod("1", "b", from("file")),
				testPod("1", "c", from("file"))},
			func(r *rig) {
				assert.Equal(r.t, []string{"RESTORE file b/1"}, r.read())
				assert.Len(r.t, r.rejected, 2)
			},
		},
		"nothing": {nil, func(r *rig) { assert.Empty(r.t, r.read()) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRigWith(t, restoring(tc.restored...), "file", "http")
				synctest.Wait()
				tc.play(r)
				r.stop()
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
		r := newRigWith(t, opts, "file")
		assert.Equal(t, []string{"RESTORE file c/3"}, r.read())
		r.stop()
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
			return testPod("1", "a", image("x"), testpod.Phase(v1.PodPending), func(p *v1.Pod) {
				p.Labels = map[string]string{}
				p.Annotations = map[string]string{"k": "v", podspec.AnnotationConfigHash: "1"}
				p.Spec.NodeSelector = map[string]string{}
				p.Spec.Tolerations = []v1.Toleration{}
				p.Spec.Containers[0].Resources.Limits = v1.ResourceList{"cpu": resource.MustParse("1000m"),
					"memory": resource.MustParse("1024Mi")}
			})
		}
		life := func(opts podconfig.Options) []podconfig.Change {
			r := newRigWith(t, opts, "file")
			synctest.Wait()
			var changes []podconfig.Change
			for range 2 {
				select {
				case c := <-r.mux.Changes():
					changes = append(changes, c)
				default:
					r.set(0, whole())
				}
				synctest.Wait()
			}
			r.stop()
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
		assert.Equal(t, first[0].Pods[0].Annotations, second[0].Pods[0].Annotations,
			"it was first seen in the life before")
		for _, c := range second[1:] {
			assert.Empty(t, c.Pods, "the source delivers the same")
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

// restorer is a source that delivers what was restored of it.
type restorer struct {
	delay                time.Duration
	restored, afterwards []*v1.Pod
}

func (r *restorer) Name() string { return "file" }
func (r *restorer) Run(ctx context.Context, sink podconfig.Sink) error {
	time.Sleep(r.delay)
	r.restored = sink.Restored()
	sink.Set(r.restored)
	<-ctx.Done()
	r.afterwards = sink.Restored()
	return nil
}

func TestSourceThatKeepsRestoredPods(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &restorer{delay: time.Second} // the reader is faster
		opts := restoring(testPod("1", "a", from("file")), nil, testPod("2", "b", from("http")))
		opts.Sources = []podconfig.Source{r}
		m, err := podconfig.New(opts)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- m.Run(ctx) }()
		var ops []string
		for c := range m.Changes() {
			ops = append(ops, fmt.Sprint(c.Op, len(c.Pods)))
			if c.Op == podconfig.Add {
				break
			}
		}
		assert.Equal(t, []string{"RESTORE 1", "ADD 0"}, ops, "it is the same pod")
		require.Len(t, r.restored, 1)
		assert.Equal(t, "a", r.restored[0].Name)
		cancel()
		require.NoError(t, <-done)
		assert.Empty(t, r.afterwards, "the snapshot has replaced them")
	})
}

// delayer is a source that delays its restored pods.
type delayer struct {
	*scripted
	after chan struct{}
}

func (d *delayer) RestoreAfter() <-chan struct{} { return d.after }

func TestDelayedRestore(t *testing.T) {
	t.Parallel()
	whole := func(s podconfig.Source) podconfig.Source { return s }
	for name, tc := range map[string]struct {
		wrap func(podconfig.Source) podconfig.Source
		play func(r *rig, d *delayer)
	}{
		"the pods may run": {whole, func(r *rig, d *delayer) {
			close(d.after)
			assert.Equal(r.t, []string{"RESTORE api a/1 b/2"}, r.read())
			d.sets <- []*v1.Pod{testPod("1", "a")}
			assert.Equal(r.t, []string{"REMOVE api b/2"}, r.read())
		}},
		"the source delivers first": {whole, func(r *rig, d *delayer) {
			d.sets <- []*v1.Pod{testPod("1", "a")}
			assert.Equal(r.t, []string{"ADD api a/1"}, r.read())
			close(d.after)
			assert.Empty(r.t, r.read())
		}},
		"the source is removed": {whole, func(r *rig, d *delayer) {
			r.mux.Remove("api")
			close(d.after)
			assert.Empty(r.t, r.read())
		}},
		"through a wrapper": {
			func(s podconfig.Source) podconfig.Source {
				return podconfig.MapPods(s, func(pod *v1.Pod) *v1.Pod { return pod })
			},
			func(r *rig, d *delayer) {
				assert.Empty(r.t, r.read())
				close(d.after)
				assert.Equal(r.t, []string{"RESTORE api a/1 b/2"}, r.read())
			},
		},
		"the agent ends": {whole, func(r *rig, d *delayer) {}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := &delayer{newScripted("api"), make(chan struct{})}
				opts := restoring(testPod("1", "a", from("api")), testPod("2", "b", from("api")),
					testPod("3", "c", from("file")))
				opts.Sources = []podconfig.Source{tc.wrap(d)}
				r := newRigWith(t, opts, "file")
				assert.Equal(t, []string{"RESTORE file c/3"}, r.read(), "another source delays nothing")
				tc.play(r, d)
				r.stop()
			})
		})
	}
}
