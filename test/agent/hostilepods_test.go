package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/podconfig/checkpoint"
	"github.com/kubeletkit/kubeletkit/podconfig/manifest"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// hostilePods are pods whose names and paths lead elsewhere, and one good pod.
func hostilePods() []*v1.Pod {
	var pods []*v1.Pod
	add := func(change func(p *v1.Pod, path string)) {
		for _, path := range []string{"../../../../evil", "..", "a/../../../../evil", "/evil", "evil/evil"} {
			pod := makePod(fmt.Sprint("pod-", len(pods)))
			pod.Spec.Volumes = []v1.Volume{{Name: "v",
				VolumeSource: v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{
					Items: []v1.DownwardAPIVolumeFile{{Path: "name",
						FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
				}}}, {Name: "e", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}}
			pod.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "v", MountPath: "/v"},
				{Name: "e", MountPath: "/e"}}
			pod.Spec.Containers[0].Env = []v1.EnvVar{{Name: "UP", Value: path}}
			change(pod, path)
			pods = append(pods, pod)
		}
	}
	add(func(p *v1.Pod, path string) { p.Name = path })
	add(func(p *v1.Pod, path string) { p.Namespace = path })
	add(func(p *v1.Pod, path string) { p.UID = types.UID(path) })
	add(func(p *v1.Pod, path string) { p.Spec.Containers[0].Name = path })
	add(func(p *v1.Pod, path string) { p.Spec.Containers[0].Image = path })
	add(func(p *v1.Pod, path string) { p.Spec.Containers[0].TerminationMessagePath = path })
	add(func(p *v1.Pod, path string) { p.Spec.Hostname = path })
	add(func(p *v1.Pod, path string) {
		p.Spec.InitContainers = []v1.Container{{Name: path, Image: "image:1"}}
	})
	add(func(p *v1.Pod, path string) {
		p.Spec.EphemeralContainers = []v1.EphemeralContainer{
			{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: path, Image: "image:1"}}}
	})
	for i := range 2 {
		add(func(p *v1.Pod, path string) {
			p.Spec.Volumes[i].Name, p.Spec.Containers[0].VolumeMounts[i].Name = path, path
		})
		add(func(p *v1.Pod, path string) { p.Spec.Containers[0].VolumeMounts[i].MountPath = path })
		add(func(p *v1.Pod, path string) { p.Spec.Containers[0].VolumeMounts[i].SubPath = path })
		add(func(p *v1.Pod, path string) { p.Spec.Containers[0].VolumeMounts[i].SubPathExpr = path })
		add(func(p *v1.Pod, _ string) { p.Spec.Containers[0].VolumeMounts[i].SubPathExpr = "$(UP)" })
	}
	add(func(p *v1.Pod, path string) { p.Spec.Volumes[0].DownwardAPI.Items[0].Path = path })
	add(func(p *v1.Pod, path string) {
		p.Spec.Volumes[0].VolumeSource = v1.VolumeSource{
			Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
				{DownwardAPI: &v1.DownwardAPIProjection{Items: []v1.DownwardAPIVolumeFile{{Path: path, FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.name"}}}}},
			}}}
	})
	return append(pods, makePod("good"))
}

// TestHostilePods has pods of every source make nothing outside of the root directory and of that of the logs. The good
// pod runs, and who is refused is named.
func TestHostilePods(t *testing.T) {
	deliverAll := func(deliver func(s podconfig.Sink, pods []*v1.Pod)) func(context.Context, podconfig.Sink) error {
		return func(ctx context.Context, s podconfig.Sink) error {
			deliver(s, hostilePods())
			<-ctx.Done()
			return nil
		}
	}
	snapshot := deliverAll(func(s podconfig.Sink, pods []*v1.Pod) { s.Set(pods) })
	for name, source := range map[string]func() podconfig.Source{
		"channel": func() podconfig.Source {
			pods := make(chan []*v1.Pod, 1) // the one snapshot
			pods <- hostilePods()
			return podconfig.NewChannel("broker", pods)
		},
		"static":     func() podconfig.Source { return podconfig.NewStatic("built-in", hostilePods()...) },
		"function":   func() podconfig.Source { return podconfig.SourceFunc("broker", snapshot) },
		"file":       func() podconfig.Source { return podconfig.SourceFunc("file", snapshot) },
		"http":       func() podconfig.Source { return podconfig.SourceFunc("http", snapshot) },
		"API server": func() podconfig.Source { return podconfig.SourceFunc(podspec.SourceAPI, snapshot) },
		"deltas": func() podconfig.Source {
			return podconfig.SourceFunc("broker", deliverAll(func(s podconfig.Sink, pods []*v1.Pod) {
				s.Set(nil)
				for _, pod := range pods {
					s.Apply(podconfig.Delta{Update: []*v1.Pod{pod}})
				}
			}))
		},
		"mapped": func() podconfig.Source {
			return podconfig.MapPods(podconfig.NewStatic("built-in", hostilePods()...),
				func(p *v1.Pod) *v1.Pod { return p.DeepCopy() })
		},
		"manifests": func() podconfig.Source {
			var texts []string
			for _, pod := range hostilePods() {
				pod.APIVersion, pod.Kind = "v1", "Pod"
				text, err := json.Marshal(pod)
				require.NoError(t, err)
				texts = append(texts, string(text))
			}
			return manifest.NewStatic("file", texts...)
		},
		"checkpoint":                  nil,
		"checkpoint of an API server": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			top := t.TempDir()
			// so that a path that leads up is seen
			base := filepath.Join(top, "1", "2", "3", "4", "5", "6", "7", "8", "9")
			root, logs := filepath.Join(base, "root"), filepath.Join(base, "logs")
			synctest.Test(t, func(t *testing.T) {
				var made podconfig.Source
				var kept checkpoint.Store
				if source != nil {
					made = source()
				} else {
					from := "broker"
					if strings.Contains(name, "API") {
						from = podspec.SourceAPI
					}
					made, kept = keptPods(t, root, from)
				}
				var mu sync.Mutex
				events := map[string]bool{}
				rt := fake.New(fake.Options{Dir: logs})
				n := startNodeWith(t, root, rt, func(o *kubeletkit.Options) {
					o.Sources = []podconfig.Source{made}
					o.Host = &runtime.Host{Hostname: "host", IPs: []string{"192.0.2.1"}, PodLogsDir: logs}
					o.Checkpoint = kept
					o.Observe.Event = func(e runtime.Event) {
						mu.Lock()
						defer mu.Unlock()
						if e.Reason == "FailedValidation" {
							events[e.Message] = true
						}
					}
				})
				time.Sleep(time.Minute)
				synctest.Wait()
				running := map[string]bool{}
				for _, pod := range n.Pods() {
					running[pod.Name] = pod.Status.Phase == v1.PodRunning
				}
				assert.True(t, running["good"] || running["good-node"], "%v", running)
				sources := n.Sources()
				mu.Lock()
				if name != "manifests" && kept == nil { // which the source and the checkpoint refuse
					assert.Greater(t, len(sources[0].Rejected), 30)
				}
				for _, r := range sources[0].Rejected {
					assert.True(t, events[r.Err.Error()], "there is no event: %v", r.Err)
				}
				mu.Unlock()
				assertInside(t, top, root, logs)
				n.RemoveSource(sources[0].Name)
				time.Sleep(5 * time.Minute) // until volumes are unmounted
				assert.Empty(t, n.Terminating())
				n.stop(t)
				require.NoError(t, rt.Close())
			})
			assertInside(t, top, root, logs)
			assert.NoDirExists(t, "/evil")
		})
	}
}

// assertInside asserts that there is nothing below top but what is in one of the directories.
func assertInside(t *testing.T, top string, dirs ...string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(top, func(path string, _ fs.DirEntry, err error) error {
		inside := slices.ContainsFunc(dirs, func(dir string) bool {
			return strings.HasPrefix(dir+"/", path+"/") || strings.HasPrefix(path, dir+"/")
		})
		assert.True(t, inside, "%s was made", path)
		return err
	}))
}

// keptPods returns a checkpoint with the hostile pods, and their source, which delivers nothing.
func keptPods(t *testing.T, root, from string) (podconfig.Source, checkpoint.Store) {
	t.Helper()
	path := filepath.Join(root, "kept")
	store, err := checkpoint.New(path, checkpoint.Options{})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	store.Load(ctx)
	for _, pod := range hostilePods() {
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, podspec.AnnotationConfigSource, from)
		store.Keep(pod)
	}
	cancel()
	require.NoError(t, store.Run(ctx))
	store, err = checkpoint.New(path, checkpoint.Options{})
	require.NoError(t, err)
	return podconfig.SourceFunc(from, func(ctx context.Context, _ podconfig.Sink) error { <-ctx.Done(); return nil }),
		store
}
