// Package local is a kubelet as the commands of its user see it: the pods, images, files and problems of the node.
package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/gc"
	"github.com/kubeletkit/kubeletkit/history"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/control"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/recent"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/terminal"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/node/eviction"
	"github.com/kubeletkit/kubeletkit/node/podresources"
	"github.com/kubeletkit/kubeletkit/podworkers"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// reasonWaiting is the reason of a pod that waits until another pod of its name has ended.
const reasonWaiting = "WaitingForPredecessor"

// Node is the agent as its user sees it: beside the desired pods it has those that are terminating and those that are
// gone and still have logs, recent events, and manifests that cannot be used. It is what the socket and the ports
// serve.
type Node struct {
	*kubeletkit.Agent
	Recent *recent.Pods
	// Broken has the manifests that cannot be used.
	Broken *Problems
	// Manifests is the path of the manifests, "" if there is none.
	Manifests string
	// Components are those of the agent, and Version is that of the program.
	Components []lifecycle.Component
	Version    string
	// Object returns the node as an API server has it, or would have it.
	Object func(context.Context) (*v1.Node, error)
	// Root is the root directory.
	Root string
	// Held has what containers hold.
	Held *podresources.Server
	// Thresholds are those of evictions.
	Thresholds []eviction.Threshold
	// Certificates returns the certificates of the node.
	Certificates func() []control.Certificate
}

// Events implements [control.Node].
func (n Node) Events(uid types.UID) []runtime.Event { return n.Recent.Events(uid) }

// AllEvents implements [control.Node].
func (n Node) AllEvents() []runtime.Event { return n.Recent.AllEvents() }

// Holdings implements [control.Node].
func (n Node) Holdings() []control.Holding { return control.Holdings(n.Held.List()) }

// History implements [control.Node].
func (n Node) History() history.Store { return n.Parts().History }

// Problems implements [control.Node]: the manifests that cannot be used, and the pods that the agent rejects. It names
// the path of the manifests if that does not exist.
func (n Node) Problems() []control.Problem {
	all := n.Broken.list()
	if n.Agent != nil { // in tests
		all = append(all, rejected(n.Agent.Sources())...)
	}
	if Missing(n.Manifests) {
		all = slices.Insert(all, 0, control.Problem{Path: n.Manifests, Error: ErrNoManifests.Error()})
	}
	return all
}

// ErrNoManifests means that the path of the manifests is misspelt, or will be mounted later.
var ErrNoManifests = errors.New("the path of the manifests (--pod-manifest-path, staticPodPath) does not exist")

// Missing reports whether there is nothing at the path.
func Missing(path string) bool {
	if path == "" {
		return false
	}
	_, err := os.Stat(path)
	return errors.Is(err, fs.ErrNotExist)
}

// NodeName implements [control.Node].
func (n Node) NodeName() string { return n.Parts().Host.NodeName }

var _ control.Node = Node{}

// Pods returns the desired pods, and after them those that are not desired any more and
// not gone yet. A pod that is terminating has a deletion timestamp, and a pod that waits
// for its predecessor has that as its reason.
func (n Node) Pods() []*v1.Pod { return n.withEnds(n.Agent.Pods(), n.Agent.Terminating()) }

// ShownPods returns the same as Pods for readers: the statuses are shared with the agent. If names
// is not nil, it returns the pods of these names, without the cost of the others.
func (n Node) ShownPods(names terminal.Names) []*v1.Pod {
	parts := n.Parts()
	shown := func(namespace, name string) bool {
		return names == nil || names[types.NamespacedName{Namespace: namespace, Name: name}]
	}
	var pods []*v1.Pod
	for _, pod := range parts.PodManager.Pods() {
		if !shown(pod.Namespace, pod.Name) {
			continue
		}
		copied := *pod
		if s, ok := parts.Status.Get(pod.UID); ok {
			copied.Status = s
		}
		pods = append(pods, &copied)
	}
	if names == nil {
		return n.withEnds(pods, n.Agent.Terminating())
	}
	return n.withEnds(pods, n.Recent.OnNode(func(ref runtime.PodRef) bool {
		_, desired := parts.PodManager.ByUID(ref.UID)
		return !desired && shown(ref.Namespace, ref.Name)
	}))
}

// withEnds returns the desired pods with those that are terminating. It changes both.
func (n Node) withEnds(pods, terminating []*v1.Pod) []*v1.Pod {
	desired := make(map[types.UID]bool, len(pods))
	for _, pod := range pods {
		desired[pod.UID] = true
	}
	pods = append(pods, terminating...)
	for _, pod := range pods { // copies
		if st := n.Parts().PodWorkers.State(pod.UID); !desired[pod.UID] || st.TerminationRequested() &&
			!st.Terminated() {
			markTerminating(pod, st)
		} else if st.Waiting {
			pod.Status.Reason, pod.Status.Message = reasonWaiting, n.waitingFor(pod.UID)
		}
	}
	return pods
}

// maxGrace is the longest grace period in seconds that is shown. Longer ones end in a year that
// JSON does not have, or overflow.
const maxGrace = 100 * 365 * 24 * 3600

// markTerminating gives the pod a deletion timestamp. The phase of a pod that is drained
// or evicted is Failed from the start; as in the API it is not while containers run.
func markTerminating(pod *v1.Pod, st podworkers.State) {
	since := st.TerminatingAt
	if since.IsZero() {
		since = time.Now()
	}
	grace := min(st.GracePeriod, maxGrace)
	ends := metav1.NewTime(since.Add(time.Duration(grace) * time.Second))
	pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &ends, &grace
	if slices.ContainsFunc(pod.Status.ContainerStatuses,
		func(c v1.ContainerStatus) bool { return c.State.Running != nil }) {
		pod.Status.Phase = v1.PodRunning
	}
	if st.RestartRequested {
		pod.Status.Message = "starts again when it has ended"
	}
}

// waitingFor returns what the pod waits for.
func (n Node) waitingFor(uid types.UID) string {
	if before, ok := n.Parts().PodWorkers.Predecessor(uid); ok {
		if st := n.Parts().PodWorkers.State(before.UID); st.TerminationRequested() {
			return fmt.Sprintf("starts when its predecessor of UID %s has ended, which has been terminating for %s "+
				"and has %ds of grace",
				before.UID, time.Since(st.TerminatingAt).Round(time.Second), st.GracePeriod)
		}
	}
	return "starts when its predecessor, a pod of the same name, has ended"
}

// Ending implements [control.Node]. It lists the runtime for orphans when no other pod is left.
func (n Node) Ending(ctx context.Context) []string {
	var left []string
	add := func(ref runtime.PodRef) {
		if st := n.Parts().PodWorkers.State(ref.UID); st.TerminationRequested() && !st.Terminated() {
			left = append(left, ref.Namespace+"/"+ref.Name+n.whyEnding(ref.UID))
		}
	}
	for _, pod := range n.Pods() {
		add(runtime.RefOf(pod))
	}
	if len(left) == 0 {
		listed, _ := n.Parts().Runtime.ListPods(ctx) // Drain returns the error
		for _, pod := range listed {
			add(pod.PodRef)
		}
	}
	return left
}

// whyEnding returns why the last attempt to end the pod has failed, if one has.
func (n Node) whyEnding(uid types.UID) string {
	for _, e := range slices.Backward(n.Events(uid)) {
		if e.Reason == "FailedKillPod" {
			return " (" + e.Message + ")"
		}
	}
	return ""
}

// errNoImages means that the agent has no collector of images.
var errNoImages = errors.New("this agent does not collect images")

// Images implements [control.Node].
func (n Node) Images(ctx context.Context, goal gc.ImageGoal) (gc.ImagePreview, error) {
	images := n.Parts().ImageGC
	if images == nil {
		return gc.ImagePreview{}, errNoImages
	}
	return images.Preview(ctx, goal)
}

// CollectImages implements [control.Node]. Removed are the images that are gone after the
// collection.
func (n Node) CollectImages(ctx context.Context, goal gc.ImageGoal) (done control.Collected) {
	before, err := n.Images(ctx, goal)
	if err == nil && goal == gc.AllUnusedImages {
		err = n.Parts().ImageGC.DeleteUnusedImages(ctx)
	} else if err == nil {
		err = n.Parts().ImageGC.GarbageCollect(ctx)
	}
	after, listErr := n.Images(ctx, goal)
	if listErr == nil {
		there := map[string]bool{}
		for i := range after.Input.Images {
			there[after.Input.Images[i].ID] = true
		}
		done.Removed = slices.DeleteFunc(before.Input.Images, func(i gc.Image) bool { return there[i.ID] })
	}
	if err = cmp.Or(err, listErr); err != nil {
		done.Error = err.Error()
	}
	return done
}

// Running is how much runs on a node.
type Running struct{ Pods, Containers int }

// Running returns how much runs.
func (n Node) Running() (r Running) {
	for _, pod := range n.Pods() {
		if status, ok := n.RuntimeStatus(pod.UID); ok {
			r.add(status)
		}
	}
	return r
}

func (r *Running) add(status *runtime.PodStatus) {
	containers := 0
	for i := range status.Containers {
		if status.Containers[i].State == runtime.ContainerRunning {
			containers++
		}
	}
	if containers > 0 {
		r.Pods++
		r.Containers += containers
	}
}
