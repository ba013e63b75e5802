package agent_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/node/volume"
	"github.com/kubeletkit/kubeletkit/podconfig/objects"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// soon is much less than the time between two ticks of the sync loop.
const soon = 50 * time.Millisecond

// A pod waits for its config map with kubelet's reason and event, and starts when it appears,
// however long its back-off has become. From then on its files follow the config map and the
// labels of the pod.
func TestFilesFollowObjectsAndLabels(t *testing.T) {
	root := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		store := objects.New()
		store.Set()
		var mu sync.Mutex
		var events []runtime.Event
		n := startNodeWith(t, root, fake.New(fake.Options{}), func(o *kubeletkit.Options) {
			o.API.Objects = store
			o.Observe.Event = func(e runtime.Event) {
				mu.Lock()
				defer mu.Unlock()
				events = append(events, e)
			}
		})
		defer n.stop(t)
		conf := func(data string) *v1.ConfigMap {
			return &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "conf"},
				Data: map[string]string{"key": data}}
		}
		pod := testpod.With(makePod("web"), testpod.Volumes(
			v1.Volume{Name: "conf",
				VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{
					LocalObjectReference: v1.LocalObjectReference{Name: "conf"}}}},
			v1.Volume{Name: "info",
				VolumeSource: v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{
					Items: []v1.DownwardAPIVolumeFile{
						{Path: "app", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.labels['app']"}},
					}}}},
		))
		pod.Namespace = "default"
		read := func(plugin, file string) string {
			data, err := os.ReadFile(filepath.Join(root, "pods", string(pod.UID), "volumes", plugin, file))
			require.NoError(t, err)
			return string(data)
		}
		n.source.Set(pod)
		waiting := n.after(10 * time.Minute)["web"].Status.ContainerStatuses[0].State.Waiting
		require.NotNil(t, waiting)
		assert.Equal(t, "ContainerCreating", waiting.Reason)
		mu.Lock()
		require.NotEmpty(t, events)
		assert.Equal(t, "FailedMount", events[0].Reason)
		assert.Equal(t, `MountVolume.SetUp failed for volume "conf" : configmap "conf" not found`, events[0].Message)
		mu.Unlock()

		store.Set(conf("1"))
		web := n.after(2 * time.Second)["web"] // at once, or a second after the last attempt
		require.NotNil(t, web.Status.ContainerStatuses[0].State.Running,
			"%v", web.Status.ContainerStatuses[0].State.Waiting)
		assert.Equal(t, "1", read("kubernetes.io~configmap", "conf/key"))
		time.Sleep(time.Minute)

		store.Set(conf("2"))
		n.after(soon)
		assert.Equal(t, "2", read("kubernetes.io~configmap", "conf/key"))
		n.source.Set(testpod.With(pod, func(p *v1.Pod) { p.Labels = map[string]string{"app": "new"} }))
		n.after(soon)
		assert.Equal(t, "new", read("kubernetes.io~downward-api", "info/app"))

		// What is gone stays in the files, and a container that crashes is started again.
		store.Set()
		n.after(time.Minute)
		assert.Equal(t, "2", read("kubernetes.io~configmap", "conf/key"))
		before := started(n.runtime)
		n.runtime.Exit(fake.Target{}, 1)
		n.after(time.Minute)
		assert.Equal(t, before+1, started(n.runtime))
		n.source.Set()
		n.after(time.Minute)
		assert.NoDirExists(t, filepath.Join(root, "pods", string(pod.UID)))
	})
}

// Files follow their config map while a sync of the pod is under way for long: here, the
// start of a second container.
func TestFilesFollowDuringALongSync(t *testing.T) {
	root := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		conf := func(data string) *v1.ConfigMap {
			return &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "conf"},
				Data: map[string]string{"key": data}}
		}
		store := objects.New()
		store.Set(conf("1"))
		n := startNodeWith(t, root, fake.New(fake.Options{}), func(o *kubeletkit.Options) { o.API.Objects = store })
		defer n.stop(t)
		n.runtime.Inject(fake.Fault{Call: "StartContainer", Target: fake.Target{Container: "second"},
			Delay: time.Minute})
		pod := testpod.With(makePod("web"), testpod.Namespace("default"), testpod.Containers("second"), testpod.Volumes(
			v1.Volume{Name: "conf",
				VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{
					LocalObjectReference: v1.LocalObjectReference{Name: "conf"}}}},
		))
		n.source.Set(pod)
		n.after(30 * time.Second)
		store.Set(conf("2"))
		n.after(soon)
		data, err := os.ReadFile(filepath.Join(root, "pods", string(pod.UID),
			"volumes/kubernetes.io~configmap/conf/key"))
		require.NoError(t, err)
		assert.Equal(t, "2", string(data))
	})
}

// fullDisk are volumes that are ready, and cannot be written.
type fullDisk struct {
	volume.Manager
	full *atomic.Bool
}

func (d fullDisk) SetUp(ctx context.Context, pod *v1.Pod, podDir string) (map[string]runtime.Volume, error) {
	if !d.full.Load() {
		return d.Manager.SetUp(ctx, pod, podDir)
	}
	ready := map[string]runtime.Volume{}
	for _, v := range pod.Spec.Volumes {
		ready[v.Name] = runtime.Volume{HostPath: podDir}
	}
	return ready, &volume.SetUpError{Pod: runtime.RefOf(pod), Volume: "conf",
		Err: &volume.OutdatedError{Err: syscall.ENOSPC}}
}

// An update of a volume that has failed is repeated, however seldom pods are synced.
func TestFilesFollowWhenTheDiskHasSpaceAgain(t *testing.T) {
	root := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		conf := func(data string) *v1.ConfigMap {
			return &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "conf"},
				Data: map[string]string{"key": data}}
		}
		store := objects.New()
		store.Set(conf("1"))
		var full atomic.Bool
		n := startNodeWith(t, root, fake.New(fake.Options{}), func(o *kubeletkit.Options) {
			o.API.Objects, o.Workers.ResyncInterval = store, 24*time.Hour
			o.Override.Volumes = kubeletkit.Wrap(func(m volume.Manager) volume.Manager { return fullDisk{m, &full} })
		})
		defer n.stop(t)
		pod := testpod.With(makePod("web"), testpod.Namespace("default"), testpod.Volumes(
			v1.Volume{Name: "conf",
				VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{
					LocalObjectReference: v1.LocalObjectReference{Name: "conf"}}}},
		))
		n.source.Set(pod)
		n.after(10 * time.Second)
		full.Store(true)
		store.Set(conf("2"))
		n.after(20 * time.Second)
		full.Store(false)
		n.after(time.Minute)
		data, err := os.ReadFile(filepath.Join(root, "pods", string(pod.UID),
			"volumes/kubernetes.io~configmap/conf/key"))
		require.NoError(t, err)
		assert.Equal(t, "2", string(data))
	})
}

// A pod whose containers, volumes and logs exceed its limits of ephemeral storage is evicted
// with kubelet's words.
func TestEphemeralStorageLimits(t *testing.T) {
	for name, tc := range map[string]struct {
		use  func(t *testing.T, n *node, root string)
		want string
	}{
		"writable layer": {func(t *testing.T, n *node, _ string) {
			n.runtime.SetUsage(fake.Target{}, fake.Usage{Disk: 5 << 20})
		}, `Pod ephemeral local storage usage exceeds the total limit of containers 4Mi. `},
		"volume": {func(t *testing.T, n *node, root string) {
			file := filepath.Join(root, "pods/uid-web/volumes/kubernetes.io~empty-dir/data/f")
			require.NoError(t, os.WriteFile(file, make([]byte, 5<<20), 0o600))
		}, `Pod ephemeral local storage usage exceeds the total limit of containers 4Mi. `},
		"logs": {func(t *testing.T, n *node, root string) {
			dir := filepath.Join(root, "logs/ns_web_uid-web/main")
			require.NoError(t, os.MkdirAll(dir, 0o700))
			require.NoError(t, os.WriteFile(filepath.Join(dir, "0.log"), make([]byte, 5<<20), 0o600))
		}, `Pod ephemeral local storage usage exceeds the total limit of containers 4Mi. `},
		"less": {func(t *testing.T, n *node, _ string) {
			n.runtime.SetUsage(fake.Target{}, fake.Usage{Disk: 3 << 20})
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				n := startNode(t, root, fake.New(fake.Options{}))
				defer n.stop(t)
				pod := testpod.With(makePod("web"), testpod.Namespace("ns"),
					testpod.Volumes(v1.Volume{Name: "data",
						VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}))
				pod.Spec.Containers[0].Resources.Limits = v1.ResourceList{
					v1.ResourceEphemeralStorage: resource.MustParse("4Mi")}
				n.source.Set(pod)
				require.Equal(t, v1.PodRunning, n.after(time.Minute)["web"].Status.Phase)
				tc.use(t, n, root)
				status := n.after(time.Minute)["web"].Status
				assert.Equal(t, tc.want, status.Message)
				if tc.want != "" {
					assert.Equal(t, v1.PodFailed, status.Phase)
					assert.Equal(t, "Evicted", status.Reason)
				}
			})
		})
	}
}

// A pod that exceeds its limits of storage is killed when that is measured, with a grace period of
// 1 s: also while a call for it is under way.
func TestEvictionForStorageIsImmediate(t *testing.T) {
	pod := func(grace int64) *v1.Pod {
		limit := resource.MustParse("1Mi")
		return testpod.With(makePod("web"), testpod.Namespace("ns"), testpod.Grace(grace), testpod.Containers("second"),
			testpod.Volumes(v1.Volume{Name: "data",
				VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{SizeLimit: &limit}}}))
	}
	for name, tc := range map[string]struct {
		pod *v1.Pod
		// before comes when the pod has run for 5 s, and then its volume exceeds its limit.
		before func(n *node)
		// after comes 30 s later.
		after func(t *testing.T, n *node, events []runtime.Event)
	}{
		"a container is being started": {pod(3600), func(n *node) {}, func(t *testing.T, n *node, events []runtime.Event) {
			status := n.after(0)["web"].Status
			assert.Equal(t, v1.PodFailed, status.Phase)
			assert.Equal(t, "Evicted", status.Reason)
			assert.Equal(t, `Usage of EmptyDir volume "data" exceeds the limit "1Mi". `, status.Message)
			for _, c := range status.Conditions {
				assert.NotEqual(t, v1.DisruptionTarget, c.Type, "kubelet sets no condition for limits")
			}
			require.Len(t, events, 1)
			assert.Equal(t, status.Message, events[0].Message)
			assert.Equal(t, v1.EventTypeWarning, events[0].Type)
			assert.Empty(t, n.runtime.Running(fake.Target{}))
		}},
		"it is being stopped": {pod(3600), func(n *node) { n.source.Set() }, func(t *testing.T, n *node, events []runtime.Event) {
			assert.Len(t, events, 1)
			assert.Empty(t, n.runtime.Running(fake.Target{}))
		}},
		"it is being stopped, and starts again": {pod(60), func(n *node) {
			n.source.Set()
			n.after(time.Second)
			n.source.Set(pod(60))
		}, func(t *testing.T, n *node, events []runtime.Event) {
			assert.Empty(t, events)
			assert.Equal(t, v1.PodRunning, n.after(3 * time.Minute)["web"].Status.Phase, "the next one is not killed")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var events []runtime.Event
				n := startNodeWith(t, root, fake.New(fake.Options{}), func(o *kubeletkit.Options) {
					o.Observe.EveryEvent = func(e runtime.Event) {
						mu.Lock()
						defer mu.Unlock()
						if e.Reason == "Evicted" {
							events = append(events, e)
						}
					}
				})
				defer n.stop(t)
				n.runtime.Script(fake.Target{}, fake.Behavior{IgnoresStop: true})
				n.runtime.Inject(fake.Fault{Call: "StartContainer", Target: fake.Target{Container: "second"},
					Delay: time.Minute, Times: 1})
				n.source.Set(tc.pod)
				n.after(5 * time.Second)
				require.NotEmpty(t, n.runtime.Running(fake.Target{}))
				tc.before(n)
				n.after(time.Second)
				require.NoError(t,
					os.WriteFile(filepath.Join(root, "pods/uid-web/volumes/kubernetes.io~empty-dir/data/f"),
						make([]byte, 2<<20), 0o600))
				n.after(30 * time.Second)
				mu.Lock()
				evictions := slices.Clone(events)
				mu.Unlock()
				tc.after(t, n, evictions)
			})
		})
	}
}
