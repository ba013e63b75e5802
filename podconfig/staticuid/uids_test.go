package staticuid_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/podconfig/checkpoint"
	"github.com/kubeletkit/kubeletkit/podconfig/staticuid"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// memory keeps states, and passes them on as JSON.
type memory struct {
	mu     sync.Mutex
	states map[string]any
}

func (m *memory) KeepState(name string, state any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.states == nil {
		m.states = map[string]any{}
	}
	m.states[name] = state
}

func (m *memory) LoadState(name string, into any) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	data, err := json.Marshal(m.states[name])
	return err == nil && m.states[name] != nil && json.Unmarshal(data, into) == nil
}

// written is when the manifests of a test were written: before the pods were started.
func written() time.Time { return time.Now().Add(-time.Hour) }

// kubelets returns a static pod as a kubelet starts it.
func kubelets(name string, options ...testpod.Option) *v1.Pod {
	return testpod.New(name, append([]testpod.Option{
		testpod.UID(types.UID("kubelet-" + name)), testpod.Static, testpod.Containers("a", "b"),
		testpod.Annotation("note", "x"), func(pod *v1.Pod) { pod.Labels = map[string]string{"app": name} },
		testpod.Annotation(podspec.AnnotationConfigSeen, time.Now().Format(time.RFC3339Nano)),
		testpod.Annotation(podspec.AnnotationConfigHash, "kubelet-"+name),
	}, options...)...)
}

// manifestOf returns the same pod as a source of manifests here has it.
func manifestOf(name, content string, options ...testpod.Option) podconfig.StaticPod {
	derived := "derived-" + name + "-" + content
	pod := kubelets(name, append([]testpod.Option{
		testpod.UID(types.UID(derived)), testpod.Annotation(podspec.AnnotationConfigHash, derived),
		func(pod *v1.Pod) { delete(pod.Annotations, podspec.AnnotationConfigSeen) },
	}, options...)...)
	return podconfig.StaticPod{Source: "file", Pod: pod, Manifest: content, Modified: written()}
}

func seeded(t *testing.T, pods ...*v1.Pod) *fake.Runtime {
	rt := fake.New(fake.Options{})
	require.NoError(t, rt.Seed(pods...))
	return rt
}

func TestAdoption(t *testing.T) {
	const adopted, derived = types.UID("kubelet-web"), types.UID("derived-web-1")
	image := func(image string) testpod.Option {
		return func(pod *v1.Pod) { pod.Spec.Containers[1].Image = image }
	}
	later := func(rt *fake.Runtime, pod *v1.Pod) {
		time.Sleep(time.Second)
		require.NoError(t, rt.Seed(pod))
	}
	for name, test := range map[string]struct {
		running func() []*v1.Pod
		in      func() podconfig.StaticPod
		then    func(rt *fake.Runtime)
		want    types.UID
	}{
		"the same":      {want: adopted},
		"no pod":        {running: func() []*v1.Pod { return nil }, want: derived},
		"another name":  {running: func() []*v1.Pod { return []*v1.Pod{kubelets("other")} }, want: derived},
		"another image": {in: func() podconfig.StaticPod { return manifestOf("web", "1", image("image:2")) }, want: derived},
		"no such container": {in: func() podconfig.StaticPod {
			return manifestOf("web", "1", func(pod *v1.Pod) { pod.Spec.Containers = pod.Spec.Containers[:1] })
		}, want: derived},
		"another label": {in: func() podconfig.StaticPod {
			return manifestOf("web", "1", func(pod *v1.Pod) { pod.Labels = map[string]string{"app": "y"} })
		}, want: derived},
		"another annotation": {in: func() podconfig.StaticPod { return manifestOf("web", "1", testpod.Annotation("note", "y")) }, want: derived},
		"another source":     {running: func() []*v1.Pod { return []*v1.Pod{kubelets("web", testpod.Source("http"))} }, want: derived},
		"a pod of the API":   {running: func() []*v1.Pod { return []*v1.Pod{kubelets("web", testpod.Source("api"))} }, want: derived},
		"a source of another name here": {in: func() podconfig.StaticPod {
			in := manifestOf("web", "1")
			in.Source = "manifests"
			return in
		}, want: adopted},
		"written later": {in: func() podconfig.StaticPod {
			in := manifestOf("web", "1")
			in.Modified = time.Now().Add(time.Second)
			return in
		}, want: derived},
		"time not known": {in: func() podconfig.StaticPod {
			in := manifestOf("web", "1")
			in.Modified = time.Time{}
			return in
		}, want: adopted},
		"two that run, the newer one": {
			running: func() []*v1.Pod { return []*v1.Pod{kubelets("web", testpod.UID("a")), kubelets("other")} },
			then:    func(rt *fake.Runtime) { later(rt, kubelets("web")) },
			want:    adopted,
		},
		"two that run, and the UID does not matter": {
			running: func() []*v1.Pod { return []*v1.Pod{kubelets("web", testpod.UID("z"))} },
			then:    func(rt *fake.Runtime) { later(rt, kubelets("web")) },
			want:    adopted,
		},
		"three that run": {
			running: func() []*v1.Pod { return []*v1.Pod{kubelets("web", testpod.UID("z"))} },
			then: func(rt *fake.Runtime) {
				later(rt, kubelets("web", testpod.UID("a")))
				later(rt, kubelets("web"))
			},
			want: adopted,
		},
		"two that run, the newer one is another pod": {
			then: func(rt *fake.Runtime) { later(rt, kubelets("web", testpod.UID("a"), image("image:2"))) },
			want: derived,
		},
		"two that run, made at the same time": {
			running: func() []*v1.Pod {
				return []*v1.Pod{kubelets("web", testpod.UID("z")), kubelets("web"), kubelets("web", testpod.UID("y"))}
			},
			want: adopted,
		},
		"a newer one has ended": {
			then: func(rt *fake.Runtime) {
				later(rt, kubelets("web", testpod.UID("kubelet-2")))
				rt.Exit(fake.Target{UID: "kubelet-2"}, 0)
				rt.KillSandbox(fake.Target{UID: "kubelet-2"})
			},
			want: adopted,
		},
		"two that have ended": {
			running: func() []*v1.Pod { return []*v1.Pod{kubelets("web", testpod.UID("a"))} },
			then: func(rt *fake.Runtime) {
				later(rt, kubelets("web"))
				rt.Restart(fake.Reboot)
			},
			want: adopted,
		},
		"the other one has ended": {
			running: func() []*v1.Pod { return []*v1.Pod{kubelets("web"), kubelets("web", testpod.UID("kubelet-2"))} },
			then: func(rt *fake.Runtime) {
				rt.Exit(fake.Target{UID: "kubelet-2"}, 0)
				rt.KillSandbox(fake.Target{UID: "kubelet-2"})
			},
			want: adopted,
		},
		"ended":                {then: func(rt *fake.Runtime) { rt.Restart(fake.Reboot) }, want: adopted},
		"a container has died": {then: func(rt *fake.Runtime) { rt.Exit(fake.Target{Container: "a"}, 1) }, want: adopted},
		"cannot be inspected":  {then: func(rt *fake.Runtime) { rt.Inject(fake.Fault{Call: "PodSandboxStatus", Err: runtime.ErrUnavailable}) }, want: derived},
		"is inspected at last": {
			then: func(rt *fake.Runtime) {
				rt.Inject(fake.Fault{Call: "PodSandboxStatus", Times: 3, Err: runtime.ErrUnavailable})
			},
			want: adopted,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if test.running == nil {
					test.running = func() []*v1.Pod { return []*v1.Pod{kubelets("web")} }
				}
				if test.in == nil {
					test.in = func() podconfig.StaticPod { return manifestOf("web", "1") }
				}
				rt := seeded(t, test.running()...)
				if test.then != nil {
					test.then(rt)
				}
				assert.Equal(t, test.want, staticuid.New(rt, staticuid.Options{}).UID(t.Context(), test.in()))
			})
		})
	}
}

// The UID of a manifest is kept for the next agent, also if that derives another one. Other content is another pod,
// and a manifest that is put back is the one of before.
func TestUIDIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt, states := seeded(t, kubelets("web")), &memory{}
		one, two := manifestOf("web", "1"), manifestOf("web", "2")
		next := func() *staticuid.UIDs { return staticuid.New(rt, staticuid.Options{States: states}) }
		uids := next()
		assert.Equal(t, types.UID("kubelet-web"), uids.UID(t.Context(), one))
		assert.Equal(t, types.UID("derived-web-2"), uids.UID(t.Context(), two), "the manifest has changed")
		assert.Equal(t, types.UID("kubelet-web"), uids.UID(t.Context(), one))

		one, two = manifestOf("web", "1", testpod.UID("v2-1")), manifestOf("web", "2", testpod.UID("v2-2"))
		uids = next()
		assert.Equal(t, types.UID("derived-web-2"), uids.UID(t.Context(), two), "a release that derives other UIDs")
		assert.Equal(t, types.UID("kubelet-web"), uids.UID(t.Context(), one))
		three := manifestOf("web", "3", testpod.UID("v2-3"))
		assert.Equal(t, types.UID("v2-3"), next().UID(t.Context(), three), "it has changed while no agent ran")
		other := manifestOf("web", "1", testpod.UID("http"), testpod.Source("http"))
		other.Source = "http"
		assert.Equal(t, types.UID("http"), next().UID(t.Context(), other), "of another source")

		// A kubelet has started it anew meanwhile.
		rt = seeded(t, kubelets("web", testpod.UID("kubelet-again")))
		assert.Equal(t, types.UID("kubelet-again"), next().UID(t.Context(), one))
		// Another one has done so, and was stopped while it was still ending that one.
		time.Sleep(time.Second)
		require.NoError(t, rt.Seed(kubelets("web", testpod.UID("kubelet-newer"))))
		assert.Equal(t, types.UID("kubelet-newer"), next().UID(t.Context(), one))
		rt = fake.New(fake.Options{})
		assert.Equal(t, types.UID("kubelet-newer"), next().UID(t.Context(), one), "nothing of it is left")
	})
}

// The kept UIDs are bounded, and those that are in use stay.
func TestKeptUIDsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt, states := seeded(t, kubelets("web")), &memory{}
		uids := staticuid.New(rt, staticuid.Options{States: states})
		one := manifestOf("web", "1")
		require.Equal(t, types.UID("kubelet-web"), uids.UID(t.Context(), one))
		for agent := range 3 {
			uids = staticuid.New(fake.New(fake.Options{}), staticuid.Options{States: states})
			require.Equal(t, types.UID("kubelet-web"), uids.UID(t.Context(), one))
			for i := range 600 {
				uids.UID(t.Context(), manifestOf("batch", strconv.Itoa(agent*1000+i)))
			}
		}
		var kept struct{ Pods []any }
		require.True(t, states.LoadState("static-pods", &kept))
		assert.Len(t, kept.Pods, 1000)
	})
}

// A file that is missing or damaged is reported once, and the runtime is asked again.
func TestDamagedRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, errs := t.TempDir(), 0
		log := funcr.New(func(_, args string) { errs++ }, funcr.Options{})
		life := func(rt *fake.Runtime) types.UID {
			store, err := checkpoint.New(dir, checkpoint.Options{Logger: log})
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- store.Run(ctx) }()
			uid := staticuid.New(rt, staticuid.Options{States: store, Logger: logr.Discard()}).UID(t.Context(),
				manifestOf("web", "1"))
			synctest.Wait()
			cancel()
			require.NoError(t, <-done)
			return uid
		}
		require.Equal(t, types.UID("kubelet-web"), life(seeded(t, kubelets("web"))))
		require.Equal(t, types.UID("kubelet-web"), life(fake.New(fake.Options{})))
		assert.Zero(t, errs)
		files, err := filepath.Glob(filepath.Join(dir, "state", "*"))
		require.NoError(t, err)
		require.Len(t, files, 1)
		require.NoError(t, os.WriteFile(files[0], []byte("{damaged"), 0o600))
		require.Equal(t, types.UID("kubelet-web"), life(seeded(t, kubelets("web"))))
		assert.Equal(t, 1, errs)
		require.Equal(t, types.UID("kubelet-web"), life(fake.New(fake.Options{})))
		assert.Equal(t, 1, errs)
		require.NoError(t, os.Remove(files[0]))
		require.Equal(t, types.UID("derived-web-1"), life(fake.New(fake.Options{})))
		assert.Equal(t, 1, errs)
	})
}

// While the runtime cannot be listed, static pods wait. It is listed once.
func TestRuntimeIsAbsent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := seeded(t, kubelets("web"), kubelets("db"))
		absent := rt.Inject(fake.Fault{Call: "ListPodSandbox", Err: runtime.ErrUnavailable})
		uids, got := staticuid.New(rt, staticuid.Options{}), make(chan types.UID, 2)
		for _, name := range []string{"web", "db"} {
			go func() { got <- uids.UID(t.Context(), manifestOf(name, "1")) }()
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		assert.Equal(t, types.UID("derived-web-1"), uids.UID(ctx, manifestOf("web", "1")), "ctx has ended")
		restored := []*v1.Pod{kubelets("web", testpod.UID("kept"))}
		assert.Equal(t, restored, uids.Restored(ctx, restored))
		assert.Empty(t, got)
		absent()
		assert.ElementsMatch(t, []types.UID{"kubelet-web", "kubelet-db"}, []types.UID{<-got, <-got})
		rt.ForgetCalls()
		assert.Equal(t, types.UID("derived-new-1"), uids.UID(t.Context(), manifestOf("new", "1")))
		assert.Empty(t, rt.Calls(fake.Target{}))
	})
}

// A pod of a checkpoint that a kubelet has started anew has the UID of that, and is left out if it is another pod.
func TestRestored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := seeded(t, kubelets("again"), kubelets("changed"), kubelets("stays", testpod.UID("derived-stays-1")))
		pods := []*v1.Pod{
			manifestOf("again", "1").Pod,
			manifestOf("changed", "1", func(pod *v1.Pod) { pod.Spec.Containers[0].Image = "image:2" }).Pod,
			manifestOf("stays", "1").Pod, manifestOf("gone", "1").Pod,
			testpod.New("again", testpod.Source("api"), testpod.Containers("a")),
		}
		var got []types.UID
		for _, pod := range staticuid.New(rt, staticuid.Options{}).Restored(t.Context(), pods) {
			got = append(got, pod.UID)
			if podspec.IsStatic(pod) {
				assert.Equal(t, string(pod.UID), pod.Annotations[podspec.AnnotationConfigHash])
			}
		}
		assert.Equal(t, []types.UID{"kubelet-again", "derived-stays-1", "derived-gone-1", "uid-again"}, got)
		assert.Equal(t, types.UID("derived-again-1"), pods[0].UID, "not changed in place")

		// The one of the checkpoint still ends.
		time.Sleep(time.Second)
		require.NoError(t, rt.Seed(kubelets("stays", testpod.UID("kubelet-stays"))))
		newer := staticuid.New(rt, staticuid.Options{}).Restored(t.Context(), pods[2:3])
		require.Len(t, newer, 1)
		assert.Equal(t, types.UID("kubelet-stays"), newer[0].UID)
	})
}
