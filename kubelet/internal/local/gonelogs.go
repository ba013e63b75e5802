package local

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/kubelet/internal/recent"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// KeepLogs is the time that the logs of a pod stay after the pod is gone, for log shippers
// and for "minikubelet logs". kubelet removes them with a collection once a minute.
const KeepLogs = time.Minute

// Gone implements [control.Node].
func (n Node) Gone() []recent.Gone {
	gone := n.Recent.Gone()
	for i := range gone {
		_, err := os.Stat(n.logsOf(gone[i].Pod))
		gone[i].Logs = err == nil
	}
	return gone
}

// Terminating implements [server.Agent]: beside the pods that are terminating it has
// those that are gone and still have logs.
func (n Node) Terminating() []*v1.Pod {
	var pods []*v1.Pod
	for _, g := range slices.Backward(n.Gone()) {
		if g.Logs {
			pods = append(pods, g.Pod)
		}
	}
	return append(pods, n.Agent.Terminating()...)
}

// RuntimeStatus implements [server.Agent]. Of a pod that is gone, the status has the
// instances that have logs.
func (n Node) RuntimeStatus(uid types.UID) (*runtime.PodStatus, bool) {
	if status, ok := n.Agent.RuntimeStatus(uid); ok {
		return status, true
	}
	for _, g := range n.Gone() {
		if g.Pod.UID == uid && g.Logs {
			return loggedInstances(g.Pod, n.logsOf(g.Pod)), true
		}
	}
	return nil, false
}

// logsOf returns the log directory of the pod, "" if it can have none.
func (n Node) logsOf(pod *v1.Pod) string {
	name := runtime.RefOf(pod).LogDirName()
	if !podspec.IsFileName(types.UID(name)) {
		return ""
	}
	return filepath.Join(n.Parts().Host.PodLogsDir, name)
}

// loggedInstances returns the instances of the pod's containers that have logs in the
// directory, <container>/<restart count>.log, the newest first.
func loggedInstances(pod *v1.Pod, dir string) *runtime.PodStatus {
	status := &runtime.PodStatus{PodRef: runtime.RefOf(pod)}
	for _, c := range podspec.Containers(&pod.Spec) {
		entries, _ := os.ReadDir(filepath.Join(dir, c.Name))
		for _, e := range entries {
			digits, ok := strings.CutSuffix(e.Name(), ".log")
			count, err := strconv.ParseInt(digits, 10, 32)
			if !ok || err != nil {
				continue // a log that was rotated
			}
			status.Containers = append(status.Containers, runtime.ContainerStatus{
				Container: runtime.Container{ID: idOf(pod, c.Name, int32(count)), Name: c.Name,
					State: runtime.ContainerExited},
				RestartCount: int32(count), LogPath: filepath.Join(dir, c.Name, e.Name()),
			})
		}
	}
	slices.SortStableFunc(status.Containers,
		func(a, b runtime.ContainerStatus) int { return int(b.RestartCount) - int(a.RestartCount) })
	return status
}

// idOf returns the ID of an instance of the container, by which the last status of the pod
// names its logs. Instances that the status does not have get an ID of their own.
func idOf(pod *v1.Pod, container string, restarts int32) runtime.ContainerID {
	for s := range podspec.Statuses(&pod.Status) {
		text := ""
		switch {
		case s.Name != container:
			continue
		case s.RestartCount == restarts && s.State.Terminated != nil:
			text = s.State.Terminated.ContainerID
		case s.RestartCount == restarts:
			text = s.ContainerID
		case s.RestartCount == restarts+1 && s.LastTerminationState.Terminated != nil:
			text = s.LastTerminationState.Terminated.ContainerID
		}
		if id, err := runtime.ParseContainerID(text); err == nil {
			return id
		}
	}
	return runtime.ContainerID{Type: "log", ID: container + "/" + strconv.Itoa(int(restarts))}
}
