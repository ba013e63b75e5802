package kubeletkit

import (
	"context"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/podworkers"
	"github.com/kubeletkit/kubeletkit/runtime"
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
	mu sync.Mutex
	on bool
	// updates is the number of calls of UpdatePod under way that may start a pod. idle is
	// closed when there are none; nil if nothing waits for that.
	updates int
	idle    chan struct{}
}

// begin returns when the last update that may start a pod has reached the workers, or when
// ctx ends. No lock is held meanwhile: such an update may emit an event, and the receiver
// of the event may call the agent.
func (d *drain) begin(ctx context.Context) {
	d.mu.Lock()
	d.on = true
	if d.updates > 0 && d.idle == nil {
		d.idle = make(chan struct{})
	}
	idle := d.idle
	d.mu.Unlock()
	if idle == nil {
		return
	}
	select {
	case <-idle:
	case <-ctx.Done():
	}
}

func (d *drain) begun() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.on
}

// updateBegins reports false if the agent is drained. Otherwise updateEnded must be called.
func (d *drain) updateBegins() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.on {
		d.updates++
	}
	return !d.on
}

func (d *drain) updateEnded() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.updates--; d.updates == 0 && d.idle != nil {
		close(d.idle)
		d.idle = nil
	}
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
	podworkers.Workers
	drain *drain
	// updated is called with each pod that is to be synced; nil if nothing wants to know.
	updated func(*v1.Pod)
}

// Unwrap returns the workers, for [runtime.Optional].
func (w drainedWorkers) Unwrap() any { return w.Workers }

// UpdatePod implements [podworkers.Workers].
func (w drainedWorkers) UpdatePod(u podworkers.Update) {
	switch {
	case u.Type == podworkers.Kill || u.Pod != nil && ends(u.Pod):
	case w.drain.updateBegins():
		defer w.drain.updateEnded()
	case u.Type == podworkers.Create || u.Pod != nil && !w.State(u.Pod.UID).Known():
		return
	}
	w.Workers.UpdatePod(u)
	if w.updated != nil && (u.Type == podworkers.Sync || u.Type == podworkers.Change) {
		w.updated(u.Pod)
	}
}

// ends reports whether a worker only takes the pod down: it has ended in its source, or its
// deletion was requested there.
func ends(pod *v1.Pod) bool {
	return pod.DeletionTimestamp != nil || runtime.IsPhaseTerminal(pod.Status.Phase)
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
