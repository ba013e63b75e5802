package kubeletkit_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/gc"
	"github.com/kubeletkit/kubeletkit/history"
	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/node/images"
	"github.com/kubeletkit/kubeletkit/node/volume"
	"github.com/kubeletkit/kubeletkit/pleg"
	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/podconfig/checkpoint"
	podconfigfake "github.com/kubeletkit/kubeletkit/podconfig/fake"
	"github.com/kubeletkit/kubeletkit/podconfig/manifest"
	"github.com/kubeletkit/kubeletkit/podconfig/objects"
	"github.com/kubeletkit/kubeletkit/podconfig/podmanager"
	"github.com/kubeletkit/kubeletkit/podworkers"
	"github.com/kubeletkit/kubeletkit/prober"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
	"github.com/kubeletkit/kubeletkit/status"
	"github.com/kubeletkit/kubeletkit/syncloop"
)

const web = `
apiVersion: v1
kind: Pod
metadata:
  name: web
spec:
  containers:
  - name: main
    image: registry.example/web:1
`

// An agent runs one pod; here the runtime is a fake.
func Example() {
	root, err := os.MkdirTemp("", "agent")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(root) }()
	pods, err := manifest.Load([]byte(web), manifest.Options{NodeName: "edge-7"})
	if err != nil {
		panic(err)
	}
	agent, err := kubeletkit.New(kubeletkit.Options{
		NodeName: "edge-7",
		RootDir:  root,
		Runtime:  fake.New(fake.Options{}), // cri.Dial returns the real one
		Sources:  []podconfig.Source{podconfig.NewStatic("builtin", pods...)},
	})
	if err != nil {
		panic(err)
	}
	report, err := agent.RunOnce(context.Background()) // agent.Run does not stop by itself
	fmt.Print(report)
	fmt.Println(err)
	// Output:
	// default/web-edge-7: Running
	// <nil>
}

// An agent runs until its context ends, here when its pod runs. The containers continue to run.
func ExampleRun() {
	root, err := os.MkdirTemp("", "agent")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(root) }()
	pods, err := manifest.Load([]byte(web), manifest.Options{NodeName: "edge-7"})
	if err != nil {
		panic(err)
	}
	rt := fake.New(fake.Options{})
	ctx, cancel := context.WithCancel(context.Background())
	err = kubeletkit.Run(ctx, kubeletkit.Options{
		NodeName: "edge-7",
		RootDir:  root,
		Runtime:  rt,
		Sources:  []podconfig.Source{podconfig.NewStatic("builtin", pods...)},
		StatusSink: status.SinkFunc(func(_ context.Context, _ *v1.Pod, s v1.PodStatus) error {
			if s.Phase == v1.PodRunning {
				cancel()
			}
			return nil
		}),
	})
	fmt.Println("The agent has stopped:", err)
	running, _ := runtime.ListPods(context.Background(), rt)
	fmt.Println("Its pod runs:", running[0].Running())
	// Output:
	// The agent has stopped: <nil>
	// Its pod runs: true
}

// ports gives containers a serial port.
type ports struct{ node lifecycle.Node }

func (p *ports) Name() string { return "serial ports" }

func (p *ports) Join(node lifecycle.Node) error {
	p.node = node
	node.AddReadyCheck("serial ports", func() error { return nil })
	return nil
}

func (p *ports) EditContainer(_ context.Context, pod *v1.Pod, c *v1.Container) (runtime.ContainerEdits, error) {
	p.node.Record(runtime.Record{Pod: runtime.RefOf(pod), Stage: runtime.StageDone, Kind: "serial port",
		Container: c.Name, Message: "/dev/ttyS1"})
	p.node.Event(runtime.Event{Pod: runtime.RefOf(pod), Type: v1.EventTypeNormal, Reason: "SerialPort",
		Message: "Container " + c.Name + " has /dev/ttyS1"})
	return runtime.ContainerEdits{Env: []v1.EnvVar{{Name: "PORT", Value: "/dev/ttyS1"}}}, nil
}

// A component that needs the events, the history and the ready checks of its agent.
func ExampleOptions_join() {
	runPod(func(o *kubeletkit.Options) {
		o.Observe.Event = func(e runtime.Event) {
			if e.Reason == "SerialPort" {
				fmt.Println(e.Message)
			}
		}
		o.Join = []lifecycle.Component{&ports{}}
	})
	// Output:
	// Container main has /dev/ttyS1
	// default/web: Running
}

// A program counts something by itself, beside the metrics of another package.
func ExampleObserve() {
	var disconnects atomic.Int64
	others := runtime.MeasureFunc(func(runtime.Measurement) {}) // such as that of metrics/prometheus
	opts := kubeletkit.Options{Observe: kubeletkit.Observe{Measure: func(m runtime.Measurement) {
		others(m)
		if c, ok := m.(pleg.Connected); ok && c.Err != nil {
			disconnects.Add(1)
		}
	}}}
	opts.Observe.Measure(pleg.Connected{Err: errors.New("the stream has ended")})
	fmt.Println(disconnects.Load())
	// Output: 1
}

// embedding has the example of each part, in the order of the table in docs/embed/replace.md.
var embedding = []struct {
	part    string
	example func()
}{
	{"Objects", ExampleOverrides_objects},
	{"Checkpoint", ExampleOverrides_checkpoint},
	{"History", ExampleOverrides_history},
	{"Cache", ExampleOverrides_cache},
	{"PLEG", ExampleOverrides_pLEG},
	{"PodConfig", ExampleOverrides_podConfig},
	{"PodManager", ExampleOverrides_podManager},
	{"Status", ExampleOverrides_status},
	{"Prober", ExampleOverrides_prober},
	{"Volumes", ExampleOverrides_volumes},
	{"Images", ExampleOverrides_images},
	{"PodSyncer", ExampleOverrides_podSyncer},
	{"PodWorkers", ExampleOverrides_podWorkers},
	{"GC", ExampleOverrides_gC},
	{"ImageGC", ExampleOverrides_imageGC},
	{"Admission", ExampleOverrides_admission},
	{"SyncHandler", ExampleOverrides_syncHandler},
}

// TestTheTableOfParts makes the table in docs/embed/replace.md from the types, so that it is
// true as long as this passes.
func TestTheTableOfParts(t *testing.T) {
	agent, err := kubeletkit.New(kubeletkit.Options{NodeName: "node", RootDir: t.TempDir(),
		Runtime: fake.New(fake.Options{}), Host: &runtime.Host{}})
	require.NoError(t, err)
	overrides, parts := reflect.TypeFor[kubeletkit.Overrides](), reflect.ValueOf(agent.Parts())
	require.Len(t, embedding, overrides.NumField())
	table := []string{"| `Override.` | interface | default | example |", "|---|---|---|---|"}
	for i, row := range embedding {
		field := overrides.Field(i)
		require.Equal(t, field.Name, row.part)
		def := "none: `Options." + map[string]string{"Objects": "API."}[row.part] + row.part + "`"
		if v := parts.FieldByName(row.part); !v.IsNil() {
			def = fmt.Sprintf("`%T`", v.Interface())
		}
		if row.part == "Admission" {
			def = "`syncloop.Security`, `Options.Admission.Limits`, and the admitters in `Options.Join`"
		}
		name := goruntime.FuncForPC(reflect.ValueOf(row.example).Pointer()).Name()
		name = name[strings.LastIndex(name, ".")+1:]
		table = append(table, fmt.Sprintf("| `%s` | `%s` | %s | `%s` |", row.part, field.Type.In(0), def, name))
	}
	doc, err := os.ReadFile("docs/embed/replace.md")
	require.NoError(t, err)
	assert.True(t, strings.Contains(string(doc), strings.Join(table, "\n")),
		"docs/embed/replace.md: the table is to be this one:\n%s", strings.Join(table, "\n"))
}

// runPod runs an agent with one pod on a runtime in memory until the pod runs.
func runPod(change func(o *kubeletkit.Options)) {
	root, err := os.MkdirTemp("", "agent")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(root) }()
	source := podconfigfake.NewSource("demo")
	source.Set(testpod.New("web", testpod.Containers("main")))
	rt := fake.New(fake.Options{})
	defer rt.Close()
	opts := kubeletkit.Options{NodeName: "edge-7", RootDir: root, Runtime: rt, Host: rt.Host(),
		Sources: []podconfig.Source{source}, Observe: kubeletkit.Observe{Event: func(runtime.Event) {}}}
	change(&opts)
	agent, err := kubeletkit.New(opts)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	report, _ := agent.RunOnce(ctx)
	fmt.Print(report)
}

// Objects that are looked up somewhere else first.
func ExampleOverrides_objects() {
	runPod(func(o *kubeletkit.Options) {
		o.API.Objects = objects.New()
		o.Override.Objects = kubeletkit.Wrap(func(s objects.Source) objects.Source { return vault{s} })
	})
	// Output: default/web: Running
}

type vault struct{ objects.Source }

func (v vault) Secret(ctx context.Context, namespace, name string) (*v1.Secret, error) {
	if namespace == "vault" {
		return &v1.Secret{StringData: map[string]string{"token": "…"}}, nil
	}
	return v.Source.Secret(ctx, namespace, name)
}

// A checkpoint of one's own.
func ExampleOverrides_checkpoint() {
	runPod(func(o *kubeletkit.Options) {
		o.Checkpoint = checkpoint.Base{} // or checkpoint.New
		o.Override.Checkpoint = kubeletkit.Wrap(func(c checkpoint.Store) checkpoint.Store { return printing{c} })
	})
	// Output:
	// keep web
	// default/web: Running
}

type printing struct{ checkpoint.Store }

func (p printing) Keep(pod *v1.Pod) { fmt.Println("keep", pod.Name); p.Store.Keep(pod) }

// A history that also writes what was decided to the log of the program.
func ExampleOverrides_history() {
	runPod(func(o *kubeletkit.Options) {
		o.Override.History = kubeletkit.Wrap(func(h history.Store) history.Store { return journal{h} })
	})
	// Output:
	// A sandbox is to be created: the pod has none
	// Container main is to be started: it has not run yet
	// default/web: Running
}

type journal struct{ history.Store }

func (j journal) Record(r runtime.Record) {
	if r.Stage == runtime.StageDecided && (r.Kind == runtime.KindCreateSandbox ||
		r.Kind == runtime.KindStartContainer) {
		fmt.Println(history.Sentence(r))
	}
	j.Store.Record(r)
}

// The default cache with another timeout.
func ExampleOverrides_cache() {
	runPod(func(o *kubeletkit.Options) {
		o.Override.Cache = func(_ runtime.StatusCache, p kubeletkit.Parts) (runtime.StatusCache, error) {
			opts := p.CacheOptions
			opts.InspectTimeout = 10 * time.Second
			return runtime.NewCache(p.Inspector, opts), nil
		}
	})
	// Output: default/web: Running
}

// A PLEG that needs no events of the runtime. It reads changed pods into the cache of the
// agent.
func ExampleOverrides_pLEG() {
	runPod(func(o *kubeletkit.Options) {
		o.Override.PLEG = func(_ pleg.Generator, p kubeletkit.Parts) (pleg.Generator, error) {
			opts := p.PLEGOptions.Options // with Record, Metrics and Logger
			opts.RelistPeriod = 100 * time.Millisecond
			return pleg.NewGeneric(p.Runtime, p.Cache, opts), nil
		}
	})
	// Output: default/web: Running
}

// Pods that are changed on their way to the agent.
func ExampleOverrides_podConfig() {
	runPod(func(o *kubeletkit.Options) {
		o.Override.PodConfig = kubeletkit.Wrap(func(c podconfig.Config) podconfig.Config { return &logging{Config: c} })
	})
	// Output:
	// the sources have delivered
	// default/web: Running
}

type logging struct {
	podconfig.Config
	seen bool // SourcesReady is called from one goroutine
}

func (l *logging) SourcesReady() bool {
	if l.Config.SourcesReady() && !l.seen {
		l.seen = true
		fmt.Println("the sources have delivered")
	}
	return l.seen
}

// A pod manager that reports the desired pods.
func ExampleOverrides_podManager() {
	runPod(func(o *kubeletkit.Options) {
		o.Override.PodManager = kubeletkit.Wrap(func(m podmanager.Manager) podmanager.Manager { return announcing{m} })
	})
	// Output:
	// desired: web
	// default/web: Running
}

type announcing struct{ podmanager.Manager }

func (a announcing) Set(pod *v1.Pod) { fmt.Println("desired:", pod.Name); a.Manager.Set(pod) }

// A status manager that adds a condition of its own.
func ExampleOverrides_status() {
	runPod(func(o *kubeletkit.Options) {
		o.Override.Status = kubeletkit.Wrap(func(m status.Manager) status.Manager { return conditions{m} })
	})
	// Output: default/web: Running
}

type conditions struct{ status.Manager }

func (c conditions) Set(pod *v1.Pod, s v1.PodStatus) {
	s.Conditions = append(slices.Clip(s.Conditions), v1.PodCondition{Type: "example.com/Seen",
		Status: v1.ConditionTrue})
	c.Manager.Set(pod, s)
}

// A prober that reports which pods it probes. A probe type of one's own is a handler in
// Options.Prober.Handlers.
func ExampleOverrides_prober() {
	runPod(func(o *kubeletkit.Options) {
		o.Override.Prober = kubeletkit.Wrap(func(p prober.Manager) prober.Manager { return &audited{Manager: p} })
	})
	// Output:
	// probing web
	// default/web: Running
}

type audited struct {
	prober.Manager
	once sync.Once
}

func (a *audited) AddPod(pod *v1.Pod) { // at each sync of the pod
	a.once.Do(func() { fmt.Println("probing", pod.Name) })
	a.Manager.AddPod(pod)
}

// Pods whose volumes are not ready are shown. A volume type of one's own is
// a plugin in Options.Volumes.Plugins.
func ExampleOverrides_volumes() {
	runPod(func(o *kubeletkit.Options) {
		o.Override.Volumes = kubeletkit.Wrap(func(m volume.Manager) volume.Manager { return shownVolumes{m} })
	})
	// Output: default/web: Running
}

type shownVolumes struct{ volume.Manager }

func (s shownVolumes) SetUp(ctx context.Context, pod *v1.Pod, dir string) (map[string]runtime.Volume, error) {
	ready, err := s.Manager.SetUp(ctx, pod, dir)
	if err != nil {
		fmt.Println("not all volumes of", pod.Name, "are ready:", err)
	}
	return ready, err
}

// The images that pods need.
func ExampleOverrides_images() {
	runPod(func(o *kubeletkit.Options) {
		o.Override.Images = kubeletkit.Wrap(func(m images.Manager) images.Manager { return shownImages{m} })
	})
	// Output:
	// container main of web needs image:1
	// default/web: Running
}

type shownImages struct{ images.Manager }

func (s shownImages) Ensure(ctx context.Context, req images.Request) (*runtime.Image, error) {
	fmt.Println("container", req.Container, "of", req.Pod.Name, "needs", req.Image)
	return s.Manager.Ensure(ctx, req)
}

// Something to do before the first sync of each pod.
func ExampleOverrides_podSyncer() {
	runPod(func(o *kubeletkit.Options) {
		o.Override.PodSyncer = kubeletkit.Wrap(func(s podworkers.Syncer) podworkers.Syncer { return preparing{s} })
	})
	// Output:
	// preparing web
	// default/web: Running
}

type preparing struct{ podworkers.Syncer }

func (p preparing) SyncPod(ctx context.Context, typ podworkers.UpdateType, pod *v1.Pod,
	s *runtime.PodStatus) (podworkers.Result, error) {
	if typ == podworkers.Create {
		fmt.Println("preparing", pod.Name)
	}
	return p.Syncer.SyncPod(ctx, typ, pod, s)
}

// Workers that are made with the options of the default ones. To change a number only, set it in Options.Workers.
func ExampleOverrides_podWorkers() {
	runPod(func(o *kubeletkit.Options) {
		o.Workers.BackoffPeriod = time.Minute
		o.Override.PodWorkers = func(_ podworkers.Workers, p kubeletkit.Parts) (podworkers.Workers, error) {
			return podworkers.New(p.PodSyncer, p.Cache, p.WorkersOptions)
		}
	})
	// Output: default/web: Running
}

// No garbage collection: another daemon does it.
func ExampleOverrides_gC() {
	runPod(func(o *kubeletkit.Options) {
		o.Override.GC = kubeletkit.Replace[gc.Collector](gc.Base{})
	})
	// Output: default/web: Running
}

// Another program removes images.
func ExampleOverrides_imageGC() {
	runPod(func(o *kubeletkit.Options) {
		o.Override.ImageGC = kubeletkit.Replace[gc.ImageCollector](gc.ImageBase{})
	})
	// Output: default/web: Running
}

// An admitter that is called before the limits of the node. Components in Options.Join are
// called after them.
func ExampleOverrides_admission() {
	runPod(func(o *kubeletkit.Options) {
		o.Override.Admission = kubeletkit.Wrap(func(def lifecycle.Admitter) lifecycle.Admitter {
			return lifecycle.Chain(lifecycle.AdmitterFunc("web only", onlyWeb), def)
		})
	})
	// Output: default/web: Running
}

func onlyWeb(req lifecycle.AdmitRequest) error {
	if req.Pod.Name != "web" {
		return lifecycle.Refuse("NotWeb", "this node runs web only")
	}
	return nil
}

// A handler that sees all that the loop does.
func ExampleOverrides_syncHandler() {
	runPod(func(o *kubeletkit.Options) {
		o.Override.SyncHandler = kubeletkit.Wrap(func(h syncloop.Handler) syncloop.Handler { return tracing{h} })
	})
	// Output:
	// 1 pods added
	// default/web: Running
}

type tracing struct{ syncloop.Handler }

func (t tracing) HandlePodAdditions(pods []*v1.Pod) {
	fmt.Println(len(pods), "pods added")
	t.Handler.HandlePodAdditions(pods)
}
