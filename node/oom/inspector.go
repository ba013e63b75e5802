package oom

import (
	"context"
	"slices"
	"time"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// KillWindow is the time after a kill in which the end of the container counts as caused by it. Later ends have other
// causes: a container goes on if one of its processes is killed (kubelet's singleProcessOOMKill).
const KillWindow = 10 * time.Second

// reasonOOMKilled is the reason that runtimes give.
const reasonOOMKilled = "OOMKilled"

// Inspector implements [lifecycle.InspectionWrapper].
func (w *Watcher) Inspector(inner runtime.Inspector) runtime.Inspector { return &inspector{w, inner} }

type inspector struct {
	w     *Watcher
	inner runtime.Inspector
}

// Unwrap makes the abilities of the runtime visible, see [runtime.Optional].
func (i *inspector) Unwrap() any { return i.inner }

// InspectPod implements [runtime.Inspector].
func (i *inspector) InspectPod(ctx context.Context, ref runtime.PodRef) (*runtime.PodStatus, error) {
	status, err := i.inner.InspectPod(ctx, ref)
	if err != nil || !slices.ContainsFunc(status.Containers, mayBeKilled) {
		return status, err
	}
	// The kernel has logged the kill before the container ended.
	_ = i.w.read() // its error is that of the next one in Run
	i.w.reportAll(i.w.count(failed(status)))
	killed, late := i.w.explain(status)
	for _, v := range late {
		i.w.reportTo(v.owner, v.kill)
	}
	if len(killed) == 0 {
		return status, nil
	}
	explained := *status
	explained.Containers = slices.Clone(status.Containers) // the status of a runtime may be shared
	for _, at := range killed {
		explained.Containers[at].Reason = reasonOOMKilled
	}
	return &explained, nil
}

// mayBeKilled reports whether the container ended with a failure that the runtime does not explain by a lack of memory.
func mayBeKilled(c runtime.ContainerStatus) bool {
	return c.State == runtime.ContainerExited && c.ExitCode != 0 && c.Reason != reasonOOMKilled
}

// failed returns the IDs of the containers that may be killed.
func failed(status *runtime.PodStatus) (ids []string) {
	for i := range status.Containers {
		if mayBeKilled(status.Containers[i]) {
			ids = append(ids, status.Containers[i].ID.ID)
		}
	}
	return ids
}

// explain returns the indices of the containers that ended because of a kill, and the kills that are not reported yet.
func (w *Watcher) explain(status *runtime.PodStatus) (killed []int, late []victim) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range status.Containers {
		c := &status.Containers[i]
		kills, ok := w.containerKills.byID[c.ID.ID]
		if !ok {
			continue
		}
		if mayBeKilled(*c) && !c.FinishedAt.After(kills.last.Add(KillWindow)) {
			killed = append(killed, i)
		}
		if k, ok := w.containerKills.reported(c.ID.ID); ok {
			o, known := w.owners[c.ID.ID]
			if !known {
				o = owner{status.PodRef, c.Name, runtime.FieldPath(nil, c.Name)}
			}
			late = append(late, victim{k, o, true})
		}
	}
	return killed, late
}
