package process

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/process/internal/supervise"
)

// ReadPods returns the pods of which the directory of a server has records, each with its newest containers first. It
// is for programs that show what a server has left: it changes nothing, and may return an old state while a server
// runs. It skips records that it cannot read. The error is that of the directory.
func ReadPods(dir string) ([]*runtime.PodStatus, error) {
	sandboxes, err := os.ReadDir(filepath.Join(dir, "sandboxes"))
	if err != nil {
		return nil, err
	}
	pods, bySandbox := map[types.UID]*runtime.PodStatus{}, map[string]*runtime.PodStatus{}
	boot := supervise.BootID()
	for _, e := range sandboxes {
		var rec sandboxRecord
		if supervise.ReadFile(filepath.Join(dir, "sandboxes", e.Name()), &rec) != nil {
			continue
		}
		meta := rec.Config.GetMetadata()
		uid := types.UID(meta.GetUid())
		if pods[uid] == nil {
			pods[uid] = &runtime.PodStatus{PodRef: runtime.PodRef{UID: uid, Namespace: meta.GetNamespace(),
				Name: meta.GetName()}}
		}
		s := runtime.SandboxStatus{Sandbox: runtime.Sandbox{ID: rec.ID, Attempt: meta.GetAttempt(),
			State: runtime.SandboxReady, CreatedAt: time.Unix(0, rec.CreatedAt)}, AddressUnknown: true}
		network := rec.Config.GetLinux().GetSecurityContext().GetNamespaceOptions().GetNetwork()
		s.HostNetwork = network == criv1.NamespaceMode_NODE
		if rec.Stopped || rec.Boot != boot {
			s.State = runtime.SandboxNotReady
		}
		pods[uid].Sandboxes = append(pods[uid].Sandboxes, s)
		bySandbox[rec.ID] = pods[uid]
	}
	containers, err := os.ReadDir(filepath.Join(dir, "containers"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range containers {
		path := filepath.Join(dir, "containers", e.Name())
		var rec containerRecord
		if supervise.ReadFile(filepath.Join(path, recordFile), &rec) == nil && bySandbox[rec.SandboxID] != nil {
			pod := bySandbox[rec.SandboxID]
			pod.Containers = append(pod.Containers, readContainer(path, &rec))
		}
	}
	var all []*runtime.PodStatus
	for _, pod := range pods {
		slices.SortFunc(pod.Sandboxes, func(a, b runtime.SandboxStatus) int { return b.CreatedAt.Compare(a.CreatedAt) })
		slices.SortFunc(pod.Containers,
			func(a, b runtime.ContainerStatus) int { return b.CreatedAt.Compare(a.CreatedAt) })
		all = append(all, pod)
	}
	slices.SortFunc(all, func(a, b *runtime.PodStatus) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	return all, nil
}

// readContainer returns the state of a container from the files in its directory.
func readContainer(path string, rec *containerRecord) runtime.ContainerStatus {
	c := runtime.ContainerStatus{Container: runtime.Container{
		ID: runtime.ContainerID{Type: Name, ID: rec.ID}, Name: rec.Config.GetMetadata().GetName(),
		SandboxID: rec.SandboxID, State: runtime.ContainerCreated, CreatedAt: time.Unix(0, rec.CreatedAt)},
		Image: rec.Config.GetImage().GetImage(), LogPath: rec.LogPath,
		RestartCount: int32(rec.Config.GetMetadata().GetAttempt()),
	}
	var state supervise.State
	if supervise.ReadFile(filepath.Join(path, supervise.StateFile), &state) == nil {
		c.StartedAt = state.StartedAt
		if state.Supervisor.Alive() || state.Command.Alive() {
			c.State = runtime.ContainerRunning
		} else {
			c.State, c.ExitCode, c.Reason = runtime.ContainerExited, unknownExitCode, reasonUnknown
		}
	}
	var exit supervise.Exit
	if supervise.ReadFile(filepath.Join(path, supervise.ExitFile), &exit) == nil {
		c.State, c.StartedAt, c.FinishedAt = runtime.ContainerExited, exit.StartedAt, exit.FinishedAt
		c.ExitCode = int32(exit.Code)
		c.Reason, c.Message = reasonOf(&exit)
	}
	return c
}
