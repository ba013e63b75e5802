package kubeletkit_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/gc"
	"github.com/kubeletkit/kubeletkit/history"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/node/images"
	"github.com/kubeletkit/kubeletkit/node/volume"
	"github.com/kubeletkit/kubeletkit/pleg"
	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/podconfig/checkpoint"
	podconfigfake "github.com/kubeletkit/kubeletkit/podconfig/fake"
	"github.com/kubeletkit/kubeletkit/podconfig/objects"
	"github.com/kubeletkit/kubeletkit/podconfig/podmanager"
	"github.com/kubeletkit/kubeletkit/podworkers"
	"github.com/kubeletkit/kubeletkit/prober"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
	"github.com/kubeletkit/kubeletkit/status"
	"github.com/kubeletkit/kubeletkit/syncloop"
)

var (
	regexpLacks    = regexp.MustCompile("lacks an ability")
	regexpReplaced = regexp.MustCompile("replaced or wrapped")
)

// Each part wrapped by a type that embeds the interface and counts one method.
type (
	wrappedCache struct {
		runtime.StatusCache
		called func(string)
	}
	wrappedPLEG struct {
		pleg.Generator
		called func(string)
	}
	wrappedConfig struct {
		podconfig.Config
		called func(string)
	}
	wrappedPods struct {
		podmanager.Manager
		called func(string)
	}
	wrappedStatus struct {
		status.Manager
		called func(string)
	}
	wrappedProber struct {
		prober.Manager
		called func(string)
	}
	wrappedVolumes struct {
		volume.Manager
		called func(string)
	}
	wrappedImages struct {
		images.Manager
		called func(string)
	}
	wrappedSyncer struct {
		podworkers.Syncer
		called func(string)
	}
	wrappedWorkers struct {
		podworkers.Workers
		called func(string)
	}
	wrappedGC struct {
		gc.Collector
		called func(string)
	}
	wrappedImageGC struct {
		gc.ImageCollector
		called func(string)
	}
	wrappedHandler struct {
		syncloop.Handler
		called func(string)
	}
	wrappedCheckpoint struct {
		checkpoint.Store
		called func(string)
	}
	wrappedHistory struct {
		history.Store
		called func(string)
	}
	wrappedObjects struct {
		objects.Source
		called func(string)
	}
)

func (w wrappedCache) Now() runtime.Mark { w.called("Cache"); return w.StatusCache.Now() }
func (w wrappedPLEG) Watch() <-chan pleg.PodEvents {
	w.called("PLEG")
	return w.Generator.Watch()
}
func (w wrappedConfig) AllSeen() bool { w.called("PodConfig"); return w.Config.AllSeen() }
func (w wrappedPods) Set(pod *v1.Pod) { w.called("PodManager"); w.Manager.Set(pod) }
func (w wrappedStatus) Set(pod *v1.Pod, s v1.PodStatus) {
	w.called("Status")
	w.Manager.Set(pod, s)
}
func (w wrappedProber) AddPod(pod *v1.Pod) { w.called("Prober"); w.Manager.AddPod(pod) }
func (w wrappedVolumes) SetUp(ctx context.Context, pod *v1.Pod, dir string) (map[string]runtime.Volume, error) {
	w.called("Volumes")
	return w.Manager.SetUp(ctx, pod, dir)
}
func (w wrappedImages) Ensure(ctx context.Context, req images.Request) (*runtime.Image, error) {
	w.called("Images")
	return w.Manager.Ensure(ctx, req)
}
func (w wrappedSyncer) SyncPod(ctx context.Context, typ podworkers.UpdateType, pod *v1.Pod, s *runtime.PodStatus) (podworkers.Result, error) {
	w.called("PodSyncer")
	return w.Syncer.SyncPod(ctx, typ, pod, s)
}
func (w wrappedWorkers) UpdatePod(u podworkers.Update) {
	w.called("PodWorkers")
	w.Workers.UpdatePod(u)
}
func (w wrappedGC) Kick() { w.called("GC"); w.Collector.Kick() }
func (w wrappedImageGC) Run(ctx context.Context) error {
	w.called("ImageGC")
	return w.ImageCollector.Run(ctx)
}
func (w wrappedHandler) HandlePodAdditions(pods []*v1.Pod) {
	w.called("SyncHandler")
	w.Handler.HandlePodAdditions(pods)
}
func (w wrappedHistory) Record(r runtime.Record) { w.called("History"); w.Store.Record(r) }
func (w wrappedCheckpoint) Keep(pod *v1.Pod)     { w.called("Checkpoint"); w.Store.Keep(pod) }
func (w wrappedObjects) Watch(ctx context.Context, changed func([]objects.Ref)) error {
	w.called("Objects")
	return w.Source.Watch(ctx, changed)
}

// calls counts calls by the name of the part.
type calls struct {
	mu sync.Mutex
	n  map[string]int
}

func (c *calls) add(part string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[string]int{}
	}
	c.n[part]++
}

func (c *calls) of(part string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n[part]
}

// Every part is wrapped, and the agent works as before, with all optional interfaces.
func TestEveryPartCanBeWrapped(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		var (
			called calls
			mu     sync.Mutex
			logged []string
		)
		rt, source := fake.New(fake.Options{}), podconfigfake.NewSource("test")
		store := objects.New()
		agent, err := kubeletkit.New(kubeletkit.Options{
			NodeName: "node", RootDir: dir, Runtime: rt, Sources: []podconfig.Source{source}, API: kubeletkit.API{Objects: store}, Checkpoint: checkpoint.Base{},
			Host: &runtime.Host{Hostname: "host", IPs: []string{"192.0.2.1"}},
			Observe: kubeletkit.Observe{Logger: funcr.New(func(prefix, args string) {
				mu.Lock()
				defer mu.Unlock()
				logged = append(logged, args)
			}, funcr.Options{Verbosity: 2})},
			Override: kubeletkit.Overrides{
				Objects:    kubeletkit.Wrap(func(s objects.Source) objects.Source { return wrappedObjects{s, called.add} }),
				Checkpoint: kubeletkit.Wrap(func(c checkpoint.Store) checkpoint.Store { return wrappedCheckpoint{c, called.add} }),
				History:    kubeletkit.Wrap(func(h history.Store) history.Store { return wrappedHistory{h, called.add} }),
				Cache:      kubeletkit.Wrap(func(c runtime.StatusCache) runtime.StatusCache { return wrappedCache{c, called.add} }),
				PLEG:       kubeletkit.Wrap(func(g pleg.Generator) pleg.Generator { return wrappedPLEG{g, called.add} }),
				PodConfig:  kubeletkit.Wrap(func(c podconfig.Config) podconfig.Config { return wrappedConfig{c, called.add} }),
				PodManager: kubeletkit.Wrap(func(m podmanager.Manager) podmanager.Manager { return wrappedPods{m, called.add} }),
				Status:     kubeletkit.Wrap(func(m status.Manager) status.Manager { return wrappedStatus{m, called.add} }),
				Prober:     kubeletkit.Wrap(func(p prober.Manager) prober.Manager { return wrappedProber{p, called.add} }),
				Volumes:    kubeletkit.Wrap(func(m volume.Manager) volume.Manager { return wrappedVolumes{m, called.add} }),
				Images:     kubeletkit.Wrap(func(m images.Manager) images.Manager { return wrappedImages{m, called.add} }),
				PodSyncer:  kubeletkit.Wrap(func(s podworkers.Syncer) podworkers.Syncer { return wrappedSyncer{s, called.add} }),
				PodWorkers: kubeletkit.Wrap(func(w podworkers.Workers) podworkers.Workers { return wrappedWorkers{w, called.add} }),
				GC:         kubeletkit.Wrap(func(c gc.Collector) gc.Collector { return wrappedGC{c, called.add} }),
				ImageGC:    kubeletkit.Wrap(func(m gc.ImageCollector) gc.ImageCollector { return wrappedImageGC{m, called.add} }),
				Admission: kubeletkit.Wrap(func(a lifecycle.Admitter) lifecycle.Admitter {
					return wrappedAdmitter{a, called.add}
				}),
				SyncHandler: kubeletkit.Wrap(func(h syncloop.Handler) syncloop.Handler { return wrappedHandler{h, called.add} }),
			},
		})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- agent.Run(ctx) }()
		n := &node{Agent: agent, runtime: rt, source: source, root: dir, cancel: cancel, done: done}
		defer n.stop(t)

		source.Set(makePod("web"))
		web := n.after(time.Second)["web"]
		assert.Equal(t, v1.PodRunning, web.Status.Phase)
		rt.Exit(fake.Target{Pod: "web"}, 1)
		assert.Equal(t, int32(1), n.after(2 * time.Second)["web"].Status.ContainerStatuses[0].RestartCount)
		source.Set()
		n.after(10 * time.Second)
		assert.Empty(t, held(t, rt))
		assert.NoDirExists(t, filepath.Join(dir, "pods", "uid-web"))
		for _, part := range []string{"Objects", "Checkpoint", "History", "Cache", "PLEG", "PodConfig", "PodManager", "Status", "Prober", "Volumes", "Images",
			"PodSyncer", "PodWorkers", "GC", "ImageGC", "Admission", "SyncHandler"} {
			assert.NotZero(t, called.of(part), part)
		}
		require.NoError(t, n.AddSource(podconfigfake.NewSource("second")))
		require.NoError(t, n.Healthy())

		mu.Lock()
		defer mu.Unlock()
		assert.False(t, slices.ContainsFunc(logged, func(line string) bool { return regexpLacks.MatchString(line) }), "%q", logged)
		replaced := 0
		for _, line := range logged {
			if regexpReplaced.MatchString(line) {
				replaced++
			}
		}
		assert.Equal(t, 17, replaced, "each is logged once")
	})
}

// A runtime that is wrapped by embedding its interface hides its event stream, unless the wrapper
// has the method Unwrap.
func TestALostAbilityOfTheRuntimeIsLogged(t *testing.T) {
	type bare struct{ runtime.Runtime }
	for name, wrap := range map[string]func(*fake.Runtime) runtime.Runtime{
		"lost":  func(rt *fake.Runtime) runtime.Runtime { return bare{rt} },
		"found": func(rt *fake.Runtime) runtime.Runtime { return wrappedRuntime{rt} },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var lacks []string
				rt := fake.New(fake.Options{})
				agent, err := kubeletkit.New(kubeletkit.Options{NodeName: "node", RootDir: dir, Runtime: wrap(rt), Host: &runtime.Host{},
					Observe: kubeletkit.Observe{Logger: funcr.New(func(_, args string) {
						mu.Lock()
						defer mu.Unlock()
						if regexpLacks.MatchString(args) {
							lacks = append(lacks, args)
						}
					}, funcr.Options{})}})
				require.NoError(t, err)
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
				defer cancel()
				require.NoError(t, agent.Run(ctx))
				lists := 0
				for _, c := range rt.Calls(fake.Target{}) {
					if c.Method == "ListPodSandbox" || c.Method == "StreamPodSandboxes" {
						lists++
					}
				}
				mu.Lock()
				defer mu.Unlock()
				if name == "lost" {
					assert.Greater(t, lists, 300, "a relist each second")
					require.Len(t, lacks, 5, "once each")
					assert.Contains(t, lacks[0], `"interface"="runtime.EventSource"`)
					assert.Contains(t, lacks[1], `"interface"="runtime.ImageService"`)
					assert.Contains(t, lacks[2], `"interface"="runtime.DiskUsageReporter"`)
					assert.Contains(t, lacks[3], `"interface"="runtime.FeatureReporter"`)
					assert.Contains(t, lacks[4], `"interface"="runtime.Streamer or runtime.StreamLocator"`)
				} else {
					assert.Less(t, lists, 40)
					assert.Empty(t, lacks)
				}
			})
		})
	}
}

type wrappedAdmitter struct {
	lifecycle.Admitter
	called func(string)
}

func (w wrappedAdmitter) Admit(req lifecycle.AdmitRequest) (lifecycle.AdmitResponse, error) {
	w.called("Admission")
	return w.Admitter.Admit(req)
}

type wrappedRuntime struct{ runtime.Runtime }

func (w wrappedRuntime) Unwrap() any { return w.Runtime }

func TestOverridesThatFail(t *testing.T) {
	opts := kubeletkit.Options{NodeName: "node", RootDir: t.TempDir(), Runtime: fake.New(fake.Options{}), Host: &runtime.Host{}}
	opts.Override.GC = func(gc.Collector, kubeletkit.Parts) (gc.Collector, error) {
		return nil, errors.New("no disk")
	}
	_, err := kubeletkit.New(opts)
	assert.EqualError(t, err, "kubeletkit: Options.Override.GC: no disk")
	opts.Override.GC = kubeletkit.Replace[gc.Collector](nil)
	_, err = kubeletkit.New(opts)
	assert.EqualError(t, err, "kubeletkit: Options.Override.GC returned nil")
}

// An override gets the parts that were built before its own.
func TestOverridesGetTheOtherParts(t *testing.T) {
	opts := kubeletkit.Options{NodeName: "node", RootDir: t.TempDir(), Runtime: fake.New(fake.Options{}), Host: &runtime.Host{}}
	var mine podworkers.Workers
	opts.Override.PodWorkers = func(def podworkers.Workers, p kubeletkit.Parts) (podworkers.Workers, error) {
		assert.NotNil(t, p.Status)
		assert.NotNil(t, p.WorkersOptions.OnFinished)
		assert.Nil(t, p.SyncHandler, "it is built later")
		var err error
		mine, err = podworkers.New(p.PodSyncer, p.Cache, p.WorkersOptions)
		return mine, err
	}
	agent, err := kubeletkit.New(opts)
	require.NoError(t, err)
	built, _ := runtime.Optional[*podworkers.Pool](agent.Parts().PodWorkers)
	assert.Same(t, mine, built)
	assert.Equal(t, fmt.Sprintf("%T", &syncloop.PodHandler{}), fmt.Sprintf("%T", agent.Parts().SyncHandler))
}
