package kubeletkit_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// ports is a component that gives pods a serial port. It reports which one a pod has, in the history and by an event.
type ports struct {
	event  runtime.EventFunc
	record runtime.RecordFunc
}

func (p *ports) Name() string { return "serial ports" }

func (p *ports) EditContainer(_ context.Context, pod *v1.Pod, c *v1.Container) (runtime.ContainerEdits, error) {
	p.record.Emit(runtime.Record{Pod: runtime.RefOf(pod), Stage: runtime.StageDone, Kind: "serial port", Container: c.Name, Message: "/dev/ttyS1"})
	p.event.Emit(runtime.Event{Pod: runtime.RefOf(pod), Type: v1.EventTypeNormal, Reason: "SerialPort", Message: "Container " + c.Name + " has /dev/ttyS1"})
	return runtime.ContainerEdits{Env: []v1.EnvVar{{Name: "PORT", Value: "/dev/ttyS1"}}}, nil
}

// A component that needs the events, the history and the ready checks of its agent.
func ExampleWithAgent() {
	runPod(func(o *kubeletkit.Options) {
		o.Observe.Event = func(e runtime.Event) {
			if e.Reason == "SerialPort" {
				fmt.Println(e.Message)
			}
		}
		o.Join = []lifecycle.Component{kubeletkit.WithAgent(func(agent *kubeletkit.Agent) (lifecycle.Component, error) {
			agent.AddReadyCheck("serial ports", func() error { return nil })
			return &ports{event: agent.Parts().Event, record: agent.Parts().Record}, nil
		})}
	})
	// Output:
	// Container main has /dev/ttyS1
	// default/web: Running
}

// withReason is a component that changes what is observed.
type withReason struct {
	name   string
	inner  runtime.Inspector
	reason string
}

func (w *withReason) Name() string { return w.name }
func (w *withReason) Inspector(inner runtime.Inspector) runtime.Inspector {
	w.inner = inner
	return w
}
func (w *withReason) Unwrap() any { return w.inner }
func (w *withReason) InspectPod(ctx context.Context, ref runtime.PodRef) (*runtime.PodStatus, error) {
	status, err := w.inner.InspectPod(ctx, ref)
	if err != nil {
		return nil, err
	}
	changed := *status
	changed.Name += w.reason
	return &changed, nil
}

// A component of WithAgent takes its place among the others, has the parts that are built before it, and changes inspections.
func TestWithAgent(t *testing.T) {
	var got kubeletkit.Parts
	named := func(name string) lifecycle.Component {
		return lifecycle.AdmitterFunc(name, func(lifecycle.AdmitRequest) error { return nil })
	}
	build := func(reason string) lifecycle.Component {
		return kubeletkit.WithAgent(func(agent *kubeletkit.Agent) (lifecycle.Component, error) {
			got = agent.Parts()
			return &withReason{name: "reason" + reason, reason: reason}, nil
		})
	}
	rt := fake.New(fake.Options{})
	agent, err := kubeletkit.New(kubeletkit.Options{NodeName: "n", RootDir: t.TempDir(), Runtime: rt, Join: []lifecycle.Component{named("first"), build("-a"), build("-b"), named("last")}})
	require.NoError(t, err)
	assert.NotNil(t, got.Event)
	assert.NotNil(t, got.Record)
	assert.Nil(t, got.PodWorkers)
	assert.NotNil(t, agent.Parts().PodWorkers)
	status, err := agent.Parts().Cache.Newer(t.Context(), runtime.PodRef{UID: "1", Name: "web"}, agent.Parts().Cache.Now())
	require.NoError(t, err)
	assert.Equal(t, "web-a-b", status.Name, "the first component is the innermost")

	refused := errors.New("no port")
	for want, build := range map[string]func(*kubeletkit.Agent) (lifecycle.Component, error){
		"Options.Join[0]: no port":                                func(*kubeletkit.Agent) (lifecycle.Component, error) { return nil, refused },
		"Options.Join[0]: the function of WithAgent returned nil": func(*kubeletkit.Agent) (lifecycle.Component, error) { return nil, nil },
		"Options.Join[0]: the function of WithAgent is nil":       nil,
	} {
		_, err := kubeletkit.New(kubeletkit.Options{NodeName: "n", RootDir: t.TempDir(), Runtime: rt, Join: []lifecycle.Component{kubeletkit.WithAgent(build)}})
		assert.ErrorContains(t, err, want)
	}
	_, err = lifecycle.New(build(""))
	assert.ErrorContains(t, err, "which only kubeletkit.New builds", "it is refused where nothing builds it")
}
