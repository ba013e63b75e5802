package cluster

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/kubeletkit/kubeletkit/lifecycle"
	lifecyclefake "github.com/kubeletkit/kubeletkit/lifecycle/fake"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// inState is a node on which all pods are in one state.
type inState struct {
	*lifecyclefake.Node
	state lifecycle.PodState
}

func (n inState) State(types.UID) lifecycle.PodState { return n.state }

// A pod has ended when its worker has finished. One without a worker may still run, from the time of an earlier agent,
// or is about to get one.
func TestEndOfAPod(t *testing.T) {
	n, err := New(Config{NodeName: "n", REST: &rest.Config{Host: "https://127.0.0.1:1"}})
	require.NoError(t, err)
	pod := bound("web")
	pod.UID = "u"
	for name, c := range map[string]struct {
		state   lifecycle.PodState
		desired []*v1.Pod
		want    bool
	}{
		"running":                   {lifecycle.PodState{Known: true, MayRun: true}, []*v1.Pod{pod}, false},
		"stopped":                   {lifecycle.PodState{Known: true, Ending: true, Stopped: true}, []*v1.Pod{pod}, false},
		"finished":                  {lifecycle.PodState{Known: true, Stopped: true, Finished: true}, []*v1.Pod{pod}, true},
		"of an earlier agent":       {lifecycle.PodState{MayRun: true}, nil, false},
		"without a worker":          {lifecycle.PodState{}, []*v1.Pod{pod}, false},
		"not in the API any more":   {lifecycle.PodState{}, nil, false},
		"finished, and not desired": {lifecycle.PodState{Known: true, Finished: true}, nil, true},
	} {
		agent := lifecyclefake.NewNode()
		agent.SetDesired(true, c.desired...)
		n.agent = inState{agent, c.state}
		assert.Equal(t, c.want, n.ended("u"), name)
	}
}

// A mirror pod is an orphan if no static pod has its name, as soon as all sources have delivered.
func TestOrphanedMirrorPods(t *testing.T) {
	n, err := New(Config{NodeName: "n", REST: &rest.Config{Host: "https://127.0.0.1:1"}})
	require.NoError(t, err)
	static := bound("static-n")
	static.Annotations = map[string]string{podspec.AnnotationConfigSource: "file"}
	require.True(t, podspec.IsStatic(static))
	agent := lifecyclefake.NewNode()
	n.agent = agent
	agent.SetDesired(false)
	assert.False(t, n.orphaned("default", "static-n"))
	agent.SetDesired(true, bound("static-n"), static)
	assert.False(t, n.orphaned("default", "static-n"))
	assert.True(t, n.orphaned("other", "static-n"))
	agent.SetDesired(true, bound("static-n"))
	assert.True(t, n.orphaned("default", "static-n"), "the other is no static pod")
}
