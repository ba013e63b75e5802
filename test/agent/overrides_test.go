package agent_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
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
	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/podconfig/checkpoint"
	podconfigfake "github.com/kubeletkit/kubeletkit/podconfig/fake"
	"github.com/kubeletkit/kubeletkit/podconfig/objects"
	"github.com/kubeletkit/kubeletkit/podworkers"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
	"github.com/kubeletkit/kubeletkit/syncloop"
)

var (
	regexpLacks    = regexp.MustCompile("lacks an ability")
	regexpReplaced = regexp.MustCompile("replaced or wrapped")
)

// Every part is wrapped, and the agent works as before, with all optional interfaces.
func TestEveryPartCanBeWrapped(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		var (
			called sync.Map // the name of the part
			mu     sync.Mutex
			logged []string
		)
		e := &reentry{instead: func(place string) {
			part, _, _ := strings.Cut(place, ".")
			called.Store(part, true)
		}}
		rt, source := fake.New(fake.Options{}), podconfigfake.NewSource("test")
		store := objects.New()
		agent, err := kubeletkit.New(kubeletkit.Options{
			NodeName: "node", RootDir: dir, Runtime: rt, Sources: []podconfig.Source{source},
			API: kubeletkit.API{Objects: store}, Checkpoint: checkpoint.Base{},
			Host: &runtime.Host{Hostname: "host", IPs: []string{"192.0.2.1"}},
			Observe: kubeletkit.Observe{Logger: funcr.New(func(prefix, args string) {
				mu.Lock()
				defer mu.Unlock()
				logged = append(logged, args)
			}, funcr.Options{Verbosity: 2})},
			Override: e.overrides(),
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
		parts := reflect.TypeFor[kubeletkit.Overrides]()
		for i := range parts.NumField() {
			_, ok := called.Load(parts.Field(i).Name)
			assert.True(t, ok, parts.Field(i).Name)
		}
		require.NoError(t, n.AddSource(podconfigfake.NewSource("second")))
		require.NoError(t, n.Healthy())

		mu.Lock()
		defer mu.Unlock()
		assert.False(t, slices.ContainsFunc(logged, func(line string) bool { return regexpLacks.MatchString(line) }),
			"%q", logged)
		replaced := 0
		for _, line := range logged {
			if regexpReplaced.MatchString(line) {
				replaced++
			}
		}
		assert.Equal(t, parts.NumField(), replaced, "each is logged once")
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
				agent, err := kubeletkit.New(kubeletkit.Options{NodeName: "node", RootDir: dir, Runtime: wrap(rt),
					Host: &runtime.Host{},
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

type wrappedRuntime struct{ runtime.Runtime }

func (w wrappedRuntime) Unwrap() any { return w.Runtime }

func TestOverridesThatFail(t *testing.T) {
	opts := kubeletkit.Options{NodeName: "node", RootDir: t.TempDir(), Runtime: fake.New(fake.Options{}),
		Host: &runtime.Host{}}
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
	opts := kubeletkit.Options{NodeName: "node", RootDir: t.TempDir(), Runtime: fake.New(fake.Options{}),
		Host: &runtime.Host{}}
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
