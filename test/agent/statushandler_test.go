package agent_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
	"github.com/kubeletkit/kubeletkit/status"
)

// follower is a component that follows statuses.
type follower struct {
	joiner
	phases chan v1.PodPhase
}

func (f *follower) StatusChanged(uid types.UID) {
	s, _ := f.node.PodStatus(uid)
	f.phases <- s.Phase
}

// Components that follow the statuses of pods, and the function of the options, see each change, also if one of them
// panics.
func TestStatusHandler(t *testing.T) {
	broken, sound := &follower{joiner: joiner{name: "broken"}}, &follower{joiner: joiner{name: "sound"}}
	broken.phases, sound.phases = make(chan v1.PodPhase), make(chan v1.PodPhase, 1)
	close(broken.phases) // so that a send panics
	changed := make(chan types.UID, 1)
	agent, err := kubeletkit.New(kubeletkit.Options{NodeName: "n", RootDir: t.TempDir(), Runtime: fake.New(fake.Options{}),
		Status: status.Options{Changed: func(uid types.UID) { changed <- uid }},
		Join:   []lifecycle.Component{broken, sound}})
	require.NoError(t, err)
	pod := &v1.Pod{}
	pod.Name, pod.UID = "web", "uid"
	agent.Parts().Status.Set(pod, v1.PodStatus{Phase: v1.PodRunning})
	assert.Equal(t, v1.PodRunning, <-sound.phases)
	assert.Equal(t, types.UID("uid"), <-changed)
}
