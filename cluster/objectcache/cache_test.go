package objectcache_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubeletkit/kubeletkit/cluster/objectcache"
	"github.com/kubeletkit/kubeletkit/internal/apitest"
	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/podconfig/objects"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// world is a Cache that runs, in a synctest bubble, with its API server and one watcher.
type world struct {
	*objectcache.Cache
	t      *testing.T
	client *apitest.Clientset

	mu       sync.Mutex
	fail     error // of each request
	hang     bool  // lists do not return
	requests []string
	watches  map[string]int // open ones, by field selector
	reported []string
	log      strings.Builder
}

func run(t *testing.T, test func(w *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, client: apitest.NewClientset(), watches: map[string]int{}}
		w.client.PrependReactor("list", "*", func(a clienttesting.Action) (bool, kruntime.Object, error) {
			w.request("list", a.GetResource().Resource,
				a.(clienttesting.ListAction).GetListRestrictions().Fields.String())
			if err := w.failure(); err != nil {
				return true, nil, err
			}
			return false, nil, nil
		})
		w.client.PrependWatchReactor("*", func(a clienttesting.Action) (bool, watch.Interface, error) {
			selector := a.(clienttesting.WatchAction).GetWatchRestrictions().Fields.String()
			w.request("watch", a.GetResource().Resource, selector)
			if err := w.failure(); err != nil {
				return true, nil, err
			}
			inner, err := w.client.Tracker().Watch(a.GetResource(), a.GetNamespace())
			w.mu.Lock()
			defer w.mu.Unlock()
			w.watches[selector]++
			return true, &countedWatch{Interface: inner, stopped: func() {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.watches[selector]--
			}}, err
		})
		logger := funcr.New(func(_, args string) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.log.WriteString(args + "\n")
		}, funcr.Options{Verbosity: 9})
		var err error
		w.Cache, err = objectcache.New(w.client, "node", objectcache.Options{Logger: logger})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 2)
		go func() { done <- w.Run(ctx) }()
		go func() {
			done <- w.Watch(ctx, func(refs []objects.Ref) {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.reported = append(w.reported, fmt.Sprint(refs))
			})
		}()
		synctest.Wait()
		test(w)
		cancel()
		require.NoError(t, <-done)
		require.NoError(t, <-done)
		require.ErrorIs(t, w.Run(ctx), runtime.ErrAlreadyRunning)
		assert.NotContains(t, w.log.String(), "hunter2")
	})
}

type countedWatch struct {
	watch.Interface
	once    sync.Once
	stopped func()
}

func (w *countedWatch) Stop() {
	w.once.Do(w.stopped)
	w.Interface.Stop()
}

func (w *world) request(verb, resource, selector string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.requests = append(w.requests, strings.TrimSpace(verb+" "+resource+" "+selector))
}

func (w *world) failure() error {
	for {
		w.mu.Lock()
		hang, err := w.hang, w.fail
		w.mu.Unlock()
		if !hang {
			return err
		}
		time.Sleep(time.Second)
	}
}

func (w *world) set(fail error, hang bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fail, w.hang = fail, hang
}

// open returns the number of open watches with the selector.
func (w *world) open(selector string) int {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.watches[selector]
}

// take returns what was reported since the last call.
func (w *world) take() []string {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.reported
	w.reported = nil
	return r
}

func (w *world) requested() []string {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.requests
	w.requests = nil
	return r
}

// settle waits until the watches are open. The fake client set does not deliver what happens
// between a list and its watch.
func (w *world) settle() { synctest.Wait() }

func (w *world) create(name, value string, immutable bool) {
	w.t.Helper()
	w.settle()
	_, err := w.client.CoreV1().Secrets("ns").Create(w.t.Context(), secret(name, value, immutable),
		metav1.CreateOptions{})
	require.NoError(w.t, err)
}

func (w *world) update(name, value string) {
	w.t.Helper()
	w.settle()
	_, err := w.client.CoreV1().Secrets("ns").Update(w.t.Context(), secret(name, value, false), metav1.UpdateOptions{})
	require.NoError(w.t, err)
	synctest.Wait()
}

func (w *world) value(name string) string {
	w.t.Helper()
	s, err := w.Secret(w.t.Context(), "ns", name)
	if err != nil {
		return err.Error()
	}
	return string(s.Data["k"])
}

func secret(name, value string, immutable bool) *v1.Secret {
	return &v1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name,
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}},
		Data: map[string][]byte{"k": []byte(value), "password": []byte("hunter2")}, Immutable: &immutable,
	}
}

func pod(uid string, secrets ...string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: uid, UID: types.UID(uid)}}
	for _, s := range secrets {
		p.Spec.ImagePullSecrets = append(p.Spec.ImagePullSecrets, v1.LocalObjectReference{Name: s})
	}
	return p
}

func (w *world) add(pods ...*v1.Pod)    { w.Update(pods, nil) }
func (w *world) remove(pods ...*v1.Pod) { w.Update(nil, pods) }

const ofS = "metadata.name=s"

func TestOneWatchForEachReferencedObject(t *testing.T) {
	t.Parallel()
	run(t, func(w *world) {
		w.create("s", "1", false)
		w.create("other", "1", false)
		a, b := pod("a", "s"), pod("b", "s")
		w.add(a, b)
		assert.Equal(t, "1", w.value("s"))
		assert.Equal(t, []string{"list secrets " + ofS, "watch secrets " + ofS}, w.requested())
		assert.Equal(t, 1, w.open(ofS))
		s, err := w.Secret(w.t.Context(), "ns", "s")
		require.NoError(t, err)
		assert.Empty(t, s.ManagedFields)
		w.remove(a)
		assert.Equal(t, 1, w.open(ofS))
		w.remove(b)
		assert.Equal(t, 0, w.open(ofS))
		assert.Contains(t, w.value("s"), objectcache.ErrNotReferenced.Error())
		w.update("s", "2")
		w.add(a)
		assert.Equal(t, "2", w.value("s"), "it is read again")
	})
}

func TestReferencesOfAPodChange(t *testing.T) {
	t.Parallel()
	run(t, func(w *world) {
		w.create("s", "1", false)
		w.add(pod("a", "s"))
		require.Equal(t, "1", w.value("s"))
		w.requested()
		w.add(pod("a", "t", "s"))
		assert.Equal(t, []string{"list secrets metadata.name=t", "watch secrets metadata.name=t"}, w.requested(),
			"the watch of s goes on")
		w.add(pod("a", "t"))
		assert.Equal(t, 0, w.open(ofS))
	})
}

func TestPodsThatDoNotCount(t *testing.T) {
	t.Parallel()
	mirror, ended, failed := pod("m", "s"), pod("e", "s"), pod("f", "s")
	mirror.Annotations = map[string]string{podspec.AnnotationConfigMirror: "u"}
	ended.Status.Phase, failed.Status.Phase = v1.PodSucceeded, v1.PodFailed
	run(t, func(w *world) {
		w.create("s", "1", false)
		w.add(mirror, ended, failed)
		assert.Contains(t, w.value("s"), objectcache.ErrNotReferenced.Error())
		running := ended.DeepCopy()
		running.Status.Phase = v1.PodRunning
		w.add(running)
		assert.Equal(t, "1", w.value("s"))
		w.add(ended)
		assert.Equal(t, 0, w.open(ofS), "its containers have ended")
	})
}

func TestImmutableObjectsAreReadOnce(t *testing.T) {
	t.Parallel()
	run(t, func(w *world) {
		w.create("s", "1", true)
		w.add(pod("a", "s"))
		assert.Equal(t, "1", w.value("s"))
		assert.Equal(t, 0, w.open(ofS))
		w.requested()
		time.Sleep(time.Hour)
		assert.Empty(t, w.requested())
		assert.Equal(t, "1", w.value("s"))
	})
}

func TestChangesAreReported(t *testing.T) {
	t.Parallel()
	run(t, func(w *world) {
		w.create("s", "1", false)
		w.add(pod("a", "s", "missing"))
		assert.Equal(t, []string{"[]"}, w.take(), "lookups can be answered")
		assert.Equal(t, "1", w.value("s"))
		assert.Equal(t, `secret "missing" not found`, w.value("missing"))
		w.update("s", "1")
		assert.Empty(t, w.take(), "the data is the same")
		w.update("s", "2")
		assert.Equal(t, []string{"[secret ns/s]"}, w.take())
		assert.Equal(t, "2", w.value("s"))
		w.create("missing", "1", false)
		assert.Equal(t, []string{"[secret ns/missing]"}, w.take())
		w.settle()
		require.NoError(t, w.client.CoreV1().Secrets("ns").Delete(w.t.Context(), "s", metav1.DeleteOptions{}))
		assert.Equal(t, []string{"[secret ns/s]"}, w.take())
		_, err := w.Secret(w.t.Context(), "ns", "s")
		assert.True(t, apierrors.IsNotFound(err))
		w.add(pod("b", "missing"))
		assert.Empty(t, w.take(), "known already")
	})
}

func TestConfigMaps(t *testing.T) {
	t.Parallel()
	run(t, func(w *world) {
		p := testpod.With(pod("a"), testpod.Containers("main"),
			testpod.Volumes(v1.Volume{Name: "v",
				VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{
					LocalObjectReference: v1.LocalObjectReference{Name: "m"}}}}))
		w.add(p)
		_, err := w.ConfigMap(w.t.Context(), "ns", "m")
		assert.EqualError(t, err, `configmap "m" not found`)
		synctest.Wait() // until it is watched: the fake server replays nothing
		m := &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "m"},
			BinaryData: map[string][]byte{"b": {1}}}
		w.settle()
		_, err = w.client.CoreV1().ConfigMaps("ns").Create(w.t.Context(), m, metav1.CreateOptions{})
		require.NoError(t, err)
		assert.Equal(t, []string{"[]", "[configmap ns/m]"}, w.take())
		got, err := w.ConfigMap(w.t.Context(), "ns", "m")
		require.NoError(t, err)
		assert.Equal(t, m.BinaryData, got.BinaryData)
	})
}

func TestLookupWaitsForTheFirstRead(t *testing.T) {
	t.Parallel()
	run(t, func(w *world) {
		w.create("s", "1", false)
		w.set(nil, true)
		w.add(pod("a", "s"))
		start := time.Now()
		_, err := w.Secret(w.t.Context(), "ns", "s")
		require.ErrorIs(t, err, objectcache.ErrNotRead)
		assert.False(t, apierrors.IsNotFound(err))
		assert.Equal(t, time.Second, time.Since(start))
		ctx, cancel := context.WithTimeout(w.t.Context(), time.Millisecond)
		defer cancel()
		_, err = w.Secret(ctx, "ns", "s")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Empty(t, w.take())
		time.AfterFunc(time.Second/2, func() { w.set(nil, false) })
		assert.Equal(t, "1", w.value("s"), "it waits until the server answers")
	})
}

func TestServerAway(t *testing.T) {
	t.Parallel()
	run(t, func(w *world) {
		w.create("s", "1", false)
		w.create("t", "1", false)
		w.add(pod("a", "s"))
		require.Equal(t, "1", w.value("s"))
		w.take()
		w.set(errors.New("connection refused"), false)
		time.Sleep(time.Hour) // its watch has ended since
		assert.Equal(t, "1", w.value("s"), "what was read stays")
		w.requested()
		w.add(pod("b", "t"))
		time.Sleep(time.Minute)
		start := time.Now()
		assert.Contains(t, w.value("t"), "connection refused")
		assert.Zero(t, time.Since(start), "only the first second waits")
		assert.Less(t, len(w.requested()), 20)
		w.set(nil, false)
		time.Sleep(46 * time.Second)
		assert.Equal(t, []string{"[secret ns/t]"}, w.take(), "the pod that waits is synced")
		assert.Equal(t, "1", w.value("t"))
	})
}

func TestAHangingServerIsGivenUp(t *testing.T) {
	t.Parallel()
	run(t, func(w *world) {
		w.create("s", "1", false)
		w.set(nil, true)
		w.add(pod("a", "s"))
		time.Sleep(10 * time.Minute)
		w.set(nil, false)
		time.Sleep(time.Minute)
		assert.Equal(t, "1", w.value("s"))
	})
}

func TestForbidden(t *testing.T) {
	t.Parallel()
	run(t, func(w *world) {
		w.create("s", "1", false)
		w.set(apierrors.NewForbidden(v1.Resource("secrets"), "s", errors.New("no relationship found between node "+
			"and this object")), false)
		w.add(pod("a", "s"))
		time.AfterFunc(200*time.Millisecond, func() { w.set(nil, false) })
		assert.Equal(t, "1", w.value("s"), "the permission comes a moment after the pod")
		w.set(apierrors.NewForbidden(v1.Resource("secrets"), "t", errors.New("no relationship found between node "+
			"and this object")), false)
		w.add(pod("b", "t"))
		_, err := w.Secret(w.t.Context(), "ns", "t")
		assert.True(t, apierrors.IsForbidden(err))
		assert.EqualError(t, err,
			`node node is not permitted to list and watch secret ns/t: secrets "t" is forbidden: no relationship found between node and this object`)
	})
}

// A server that does not know the resource answers that the resource is not found.
func TestNotFoundOfTheRequest(t *testing.T) {
	t.Parallel()
	run(t, func(w *world) {
		w.set(apierrors.NewNotFound(v1.Resource("secrets"), ""), false)
		w.add(pod("a", "s"))
		_, err := w.Secret(w.t.Context(), "ns", "s")
		require.ErrorIs(t, err, objectcache.ErrNotRead)
		assert.False(t, apierrors.IsNotFound(err))
	})
}

func TestNew(t *testing.T) {
	t.Parallel()
	_, err := objectcache.New(nil, "", objectcache.Options{})
	require.EqualError(t, err, "objectcache: the client is nil\nthe name of the node is empty")
}

// A pod that refers to more objects than any agent runs a pod for has no watches. An object that only
// the node has is no answer for it.
func TestTooManyReferences(t *testing.T) {
	t.Parallel()
	run(t, func(w *world) {
		var names []string
		for i := range 1001 {
			names = append(names, fmt.Sprint("s", i))
		}
		w.create("s0", "v", false)
		w.add(pod("huge", names...))
		w.settle()
		assert.Empty(t, w.requested())
		ref := objects.Ref{Kind: objects.SecretKind, Namespace: "ns", Name: "s0"}
		assert.True(t, w.Refers(ref))
		_, err := w.Secret(t.Context(), "ns", "s0")
		require.ErrorContains(t, err, "a pod refers to more than 1000 secrets and config maps")
		require.NotErrorIs(t, err, objectcache.ErrNotReferenced)
		assert.False(t, apierrors.IsNotFound(err))

		w.add(pod("small", "s0"))
		assert.Equal(t, "v", w.value("s0"), "another pod is not concerned")
		w.remove(pod("small"))
		w.remove(pod("huge"))
		assert.False(t, w.Refers(ref))
		w.add(pod("huge", names...))
		w.add(pod("huge", "s0"))
		assert.Equal(t, "v", w.value("s0"), "the references may become fewer")

		// Users add ephemeral containers to a pod that runs. It goes on.
		debugged := pod("huge", "s0")
		debug := v1.EphemeralContainer{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug"}}
		for _, name := range names {
			debug.EnvFrom = append(debug.EnvFrom,
				v1.EnvFromSource{
					SecretRef: &v1.SecretEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: name}}})
		}
		debugged.Spec.EphemeralContainers = append(debugged.Spec.EphemeralContainers, debug)
		w.settle()
		w.requested()
		w.add(debugged)
		w.settle()
		assert.Empty(t, w.requested())
		assert.Equal(t, "v", w.value("s0"))
		_, err = w.Secret(t.Context(), "ns", "s1")
		require.ErrorContains(t, err, "a pod refers to more than 1000 secrets and config maps")
		assert.True(t, w.Refers(objects.Ref{Kind: objects.SecretKind, Namespace: "ns", Name: "s1"}))
	})
}
