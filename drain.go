package kubeletkit

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/podworkers"
	"github.com/kubeletkit/kubeletkit/syncloop"
)

// The words of kubelet for pods that end with their node.
const (
	reasonDrainRefused  = "NodeShutdown"
	messageDrainRefused = "Pod was rejected as the node is shutting down."
	reasonDrained       = "Terminated"
	messageDrained      = "Pod was terminated in response to imminent node shutdown."
)

// drain is the state of [Agent.Drain]: whether it was called. New puts it around
// [Parts].PodWorkers, Admission and Checkpoint, so that parts that are built from these
// start no pod after that either.
type drain struct {
	mu sync.RWMutex
	on bool
}

// begin returns when the last update that may start a pod has reached the workers.
func (d *drain) begin() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.on = true
}

func (d *drain) begun() bool {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.on
}

// Admit refuses pods once the agent is drained.
func (d *drain) Admit(syncloop.AdmitRequest) error {
	if d.begun() {
		return syncloop.Refuse(reasonDrainRefused, messageDrainRefused)
	}
	return nil
}

// drainedWorkers are workers that start no pod once the agent is drained, also none that
// was admitted before.
type drainedWorkers struct {
	podworkers.PodWorkers
	drain *drain
}

// Unwrap returns the workers, for [runtime.Optional].
func (w drainedWorkers) Unwrap() any { return w.PodWorkers }

// UpdatePod implements [podworkers.PodWorkers].
func (w drainedWorkers) UpdatePod(u podworkers.Update) {
	if u.Type != podworkers.Kill {
		w.drain.mu.RLock()
		defer w.drain.mu.RUnlock()
		if w.drain.on && (u.Type == podworkers.Create || !w.State(u.Pod.UID).Known()) {
			return
		}
	}
	w.PodWorkers.UpdatePod(u)
}

// drainedCheckpoint is a checkpoint that keeps the pods that are desired and were refused
// only because the agent is drained.
type drainedCheckpoint struct {
	Checkpoint
	drain   *drain
	desired func(uid types.UID) bool
}

// Unwrap returns the checkpoint, for [runtime.Optional].
func (c drainedCheckpoint) Unwrap() any { return c.Checkpoint }

// Drop implements [syncloop.Checkpoint].
func (c drainedCheckpoint) Drop(uid types.UID) {
	if !c.drain.begun() || !c.desired(uid) {
		c.Checkpoint.Drop(uid)
	}
}

// Prune implements [syncloop.Checkpoint].
func (c drainedCheckpoint) Prune(keep func(uid types.UID) bool) {
	if !c.drain.begun() {
		c.Checkpoint.Prune(keep)
		return
	}
	c.Checkpoint.Prune(func(uid types.UID) bool { return keep(uid) || c.desired(uid) })
}
