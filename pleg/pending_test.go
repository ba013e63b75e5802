package pleg

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

func TestPendingPods(t *testing.T) {
	ref := func(name string) runtime.PodRef { return runtime.PodRef{UID: types.UID("uid-" + name), Name: name} }
	started := func(id string) []Event {
		return []Event{{Type: ContainerStarted, ContainerID: runtime.ContainerID{ID: id}}}
	}
	var p pendingPods
	take := func() string {
		head, ok := p.first()
		require.True(t, ok)
		p.removeFirst()
		return fmt.Sprint(head.Pod.Name, words(head.Events))
	}
	p.add(ref("p"), nil)
	_, ok := p.first()
	require.False(t, ok, "a pod without events is not pending")
	p.add(ref("p"), started("1"))
	p.add(ref("q"), started("2"))
	p.add(ref("p"), started("3"))
	p.add(ref("p"), started("1"))
	assert.Equal(t, "p[ContainerStarted 1 ContainerStarted 3]", take())
	p.add(ref("p"), started("4"))
	assert.Equal(t, "q[ContainerStarted 2]", take())
	assert.Equal(t, "p[ContainerStarted 4]", take())
	assert.Nil(t, p.head)
	assert.Nil(t, p.tail)
	assert.Empty(t, p.pods)
	p.add(ref("r"), started("5"))
	assert.Equal(t, "r[ContainerStarted 5]", take())
}
