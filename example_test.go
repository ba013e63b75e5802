package kubeletkit_test

import (
	"context"
	"fmt"
	"os"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/pleg"
	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/podconfig/manifest"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
	"github.com/kubeletkit/kubeletkit/status"
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

// disconnects counts the ends of the event stream, and nothing else.
type disconnects struct {
	pleg.NopMetrics
	n int
}

func (d *disconnects) Connected(err error) {
	if err != nil {
		d.n++
	}
}

// A program counts something by itself, beside the metrics of another package.
func ExampleJoinMetrics() {
	var opts kubeletkit.Options
	others := kubeletkit.Metrics{PLEG: pleg.NopMetrics{}} // such as those of metrics/prometheus
	opts.Observe.Metrics = kubeletkit.JoinMetrics(others, kubeletkit.Metrics{PLEG: &disconnects{}})
	// Output:
}
