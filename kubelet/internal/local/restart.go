package local

import (
	"context"
	"fmt"
	"path/filepath"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// reasonRestart is the reason of a stop that a client has requested.
const reasonRestart = "Restart"

// StopContainers implements [control.Node]. For the worker of the pod, their ends are like any other.
func (n Node) StopContainers(ctx context.Context, uid types.UID, names []string, by string) error {
	pod, ok := n.Agent.Pod(uid)
	if !ok {
		return fmt.Errorf("no pod of this agent has the UID %s", uid)
	}
	ref := runtime.RefOf(pod)
	if n.Parts().PodWorkers.State(uid).TerminationRequested() {
		return fmt.Errorf("pod %s is ending", ref)
	}
	seen, _ := n.Agent.RuntimeStatus(uid)
	some := runtime.PodStatus{PodRef: ref} // without sandboxes: they go on
	for _, name := range names {
		c := seen.Newest(name)
		if c == nil || c.State != runtime.ContainerRunning {
			return fmt.Errorf("container %s of pod %s does not run", name, ref)
		}
		some.Containers = append(some.Containers, *c)
	}
	observer := n.Parts().Observer
	observer.Logger.Info("Containers are stopped for a restart", "pod", ref, "containers", names, "by", by)
	if by != "" {
		by = "by " + by
	}
	for _, name := range names {
		observer.Record.Emit(runtime.Record{Pod: ref, Stage: runtime.StageDecided, Kind: runtime.KindStopContainer,
			Container: name, Reason: reasonRestart, Message: by})
	}
	return n.Parts().Runtime.KillPod(ctx, runtime.PodKill{Pod: pod, Status: &some,
		Dir: filepath.Join(n.Parts().PodsDir, string(uid)), Event: observer.Event, Record: observer.Record})
}
