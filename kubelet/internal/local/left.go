package local

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/history"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/control"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/recent"
	"github.com/kubeletkit/kubeletkit/podconfig/checkpoint"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/status"
)

// reasonNoAgent is the reason of a pod of which the runtime has nothing while no agent runs.
const reasonNoAgent = "NoAgent"

// ErrNothingLeft means that no agent has left anything in the directory.
var ErrNothingLeft = errors.New("no agent has left anything on the disk")

// endpointFile has the CRI socket of the agent that was started last in a root directory. It is not there for the
// embedded runtime.
const endpointFile = "container-runtime-endpoint"

// NoteEndpoint notes the CRI socket of an agent in its root directory, "" for the embedded runtime.
func NoteEndpoint(root, endpoint string) error {
	path := filepath.Join(root, endpointFile)
	if endpoint != "" {
		return os.WriteFile(path, []byte(endpoint), 0o600)
	}
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// LastEndpoint returns what [NoteEndpoint] has noted last, "" if nothing is there.
func LastEndpoint(root string) string {
	noted, _ := os.ReadFile(filepath.Join(root, endpointFile))
	return string(noted)
}

// Left is what an agent that does not run has left: its pods by their checkpoints and by the runtime, their histories
// and logs. It serves what shows these; of a [control.Node] it has nothing else.
type Left struct {
	control.Node
	without  string // the message of pods that the runtime does not have
	pods     []*v1.Pod
	statuses map[types.UID]*runtime.PodStatus
	past     *history.Memory
	node     string
}

// ReadLeft reads what an agent has left in its root directory. It changes nothing. running are the pods of the runtime,
// if these are known. The error wraps [ErrNothingLeft] if there is nothing.
func ReadLeft(ctx context.Context, root string, running []*runtime.PodStatus, known bool) (*Left, error) {
	l := &Left{statuses: map[types.UID]*runtime.PodStatus{}}
	l.without = "nothing of it runs, and no agent runs that starts it"
	if !known {
		l.without = "no agent runs, and the container runtime does not say what runs"
	}
	pods, err := checkpoint.Read(ctx, filepath.Join(root, "podcheckpoint"))
	if err != nil && len(pods) == 0 {
		return nil, err
	}
	file := filepath.Join(root, "history")
	if l.past, err = history.New(history.Options{File: file}); err != nil {
		return nil, err
	}
	_, noHistory := os.Stat(file)
	if len(pods) == 0 && len(running) == 0 && errors.Is(noHistory, fs.ErrNotExist) {
		return nil, ErrNothingLeft
	}
	if err := l.past.Load(ctx); err != nil {
		return nil, err
	}
	for _, pod := range running {
		l.statuses[pod.UID] = pod
	}
	for _, pod := range pods {
		l.add(pod, root)
	}
	for _, pod := range running {
		if _, ok := l.Pod(pod.UID); !ok { // it has no checkpoint, or that of another directory
			l.add(stub(pod), root)
		}
	}
	return l, nil
}

// stub returns a pod of which only the runtime is known.
func stub(seen *runtime.PodStatus) *v1.Pod {
	pod := &v1.Pod{}
	pod.UID, pod.Namespace, pod.Name = seen.UID, seen.Namespace, seen.Name
	names := map[string]bool{}
	for i := range seen.Containers {
		if c := &seen.Containers[i]; !names[c.Name] {
			names[c.Name] = true
			pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Name: c.Name, Image: c.Image})
		}
	}
	return pod
}

// add adds a pod with its status.
func (l *Left) add(pod *v1.Pod, root string) {
	l.pods = append(l.pods, pod)
	if pod.Spec.NodeName != "" {
		l.node = pod.Spec.NodeName
	}
	if seen := l.statuses[pod.UID]; seen != nil {
		pod.Status = status.Generate(status.Input{Pod: pod, Runtime: seen, Now: time.Now()})
		return
	}
	pod.Status = v1.PodStatus{Phase: v1.PodPending, Reason: reasonNoAgent, Message: l.without}
	for _, logs := range []string{filepath.Join(root, "logs"), "/var/log/pods"} {
		if s := loggedInstances(pod, filepath.Join(logs, runtime.RefOf(pod).LogDirName())); len(s.Containers) > 0 {
			l.statuses[pod.UID] = s
		}
	}
}

// Running returns how much runs.
func (l *Left) Running() Running {
	var r Running
	for _, s := range l.statuses {
		r.add(s)
	}
	return r
}

// Healthy implements [server.Agent].
func (*Left) Healthy() error { return nil }

// Pods implements [server.Agent].
func (l *Left) Pods() []*v1.Pod { return l.pods }

// Pod implements [server.Agent].
func (l *Left) Pod(uid types.UID) (*v1.Pod, bool) {
	for _, pod := range l.pods {
		if pod.UID == uid {
			return pod, true
		}
	}
	return nil, false
}

// Terminating implements [server.Agent].
func (*Left) Terminating() []*v1.Pod { return nil }

// TranslateUID implements [server.Agent].
func (*Left) TranslateUID(uid types.UID) types.UID { return uid }

// RuntimeStatus implements [server.Agent].
func (l *Left) RuntimeStatus(uid types.UID) (*runtime.PodStatus, bool) {
	s, ok := l.statuses[uid]
	return s, ok
}

// Gone implements [control.Node].
func (*Left) Gone() []recent.Gone { return nil }

// Events implements [control.Node]. Events are not kept on the disk.
func (*Left) Events(types.UID) []runtime.Event { return nil }

// AllEvents implements [control.Node].
func (*Left) AllEvents() []runtime.Event { return nil }

// Problems implements [control.Node].
func (*Left) Problems() []control.Problem { return nil }

// Holdings implements [control.Node].
func (*Left) Holdings() []control.Holding { return nil }

// History implements [control.Node].
func (l *Left) History() history.Store { return l.past }

// NodeName implements [control.Node].
func (l *Left) NodeName() string { return l.node }
