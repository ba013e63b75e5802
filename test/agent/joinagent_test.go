package agent_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

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

// A component of WithAgent takes its place among the others, has the parts that are built before it, and changes
// inspections.
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
	agent, err := kubeletkit.New(kubeletkit.Options{NodeName: "n", RootDir: t.TempDir(), Runtime: rt,
		Join: []lifecycle.Component{named("first"), build("-a"), build("-b"), named("last")}})
	require.NoError(t, err)
	assert.NotNil(t, got.Event)
	assert.NotNil(t, got.Record)
	assert.Nil(t, got.PodWorkers)
	assert.NotNil(t, agent.Parts().PodWorkers)
	status, err := agent.Parts().Cache.Newer(t.Context(), runtime.PodRef{UID: "1", Name: "web"},
		agent.Parts().Cache.Now())
	require.NoError(t, err)
	assert.Equal(t, "web-a-b", status.Name, "the first component is the innermost")

	refused := errors.New("no port")
	for want, build := range map[string]func(*kubeletkit.Agent) (lifecycle.Component, error){
		"Options.Join[0]: no port":                                func(*kubeletkit.Agent) (lifecycle.Component, error) { return nil, refused },
		"Options.Join[0]: the function of WithAgent returned nil": func(*kubeletkit.Agent) (lifecycle.Component, error) { return nil, nil },
		"Options.Join[0]: the function of WithAgent is nil":       nil,
	} {
		_, err := kubeletkit.New(kubeletkit.Options{NodeName: "n", RootDir: t.TempDir(), Runtime: rt,
			Join: []lifecycle.Component{kubeletkit.WithAgent(build)}})
		assert.ErrorContains(t, err, want)
	}
	_, err = lifecycle.New(build(""))
	assert.ErrorContains(t, err, "which only kubeletkit.New builds", "it is refused where nothing builds it")
}
