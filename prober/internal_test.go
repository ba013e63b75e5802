package prober

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// Races that cannot be brought about from outside.

// empty is a runtime without pods.
type empty struct{}

func (empty) Get(types.UID) (*runtime.PodStatus, bool) { return nil, false }

func (empty) Exec(context.Context, runtime.ContainerID, []string, time.Duration) (runtime.ExecResult, error) {
	return runtime.ExecResult{}, runtime.ErrNotFound
}

// A result that comes between the sending of an earlier one and its removal is not
// removed with it.
func TestAResultThatWasReplacedIsKept(t *testing.T) {
	m, err := New(empty{}, empty{}, Options{})
	require.NoError(t, err)
	id := runtime.ContainerID{Type: "fake", ID: "1"}
	m.enqueue(runtime.ProbeResult{ContainerID: id, Kind: runtime.ReadinessProbe, Healthy: true})
	_, taken, key := m.first()
	m.enqueue(runtime.ProbeResult{ContainerID: id, Kind: runtime.ReadinessProbe, Healthy: false})
	m.sent(key, taken)
	out, next, _ := m.first()
	assert.NotNil(t, out)
	assert.False(t, next.Healthy)
	m.sent(key, next)
	out, _, _ = m.first()
	assert.Nil(t, out)
}

// An attempt that ends as its worker is stopped changes nothing.
func TestAStoppedWorkerHasNoResult(t *testing.T) {
	m, err := New(empty{}, empty{}, Options{})
	require.NoError(t, err)
	id := runtime.ContainerID{Type: "fake", ID: "1"}
	pod := testpod.New("web", testpod.Container(v1.Container{Name: "app", LivenessProbe: &v1.Probe{}}))
	m.AddPod(pod)
	w := m.pods[pod.UID].workers[workerKey{"app", runtime.LivenessProbe}]
	m.StopLivenessAndStartup(pod)
	m.set(w, id, false, "")
	_, bad := m.Unhealthy(id)
	assert.False(t, bad)
	assert.Empty(t, m.unsent)
	m.RemovePod(pod)
	m.set(w, id, false, "")
	assert.Empty(t, m.states)
}
