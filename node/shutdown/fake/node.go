// Package fake has a [shutdown.Node] and a [shutdown.Logind] in memory, for tests in virtual time, too.
//
//	logind := fake.NewLogind("")
//	go manager.Run(ctx)
//	…
//	goesOn := logind.Shutdown() // returns when the machine would go on
package fake

import (
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/node/shutdown"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// Node is a [shutdown.Node]. A pod ends as soon as it is told to, unless [Node.SetStopDelay] says
// otherwise. It is safe for concurrent use.
type Node struct {
	mu    sync.Mutex
	pods  []*v1.Pod
	delay map[types.UID]time.Duration
	ends  map[types.UID]time.Time // of pods that were told to end
	told  []End
}

// End is an end that was requested.
type End struct {
	Pod string // the name
	// GracePeriod is in seconds, that of the pod if none was given.
	GracePeriod int64
	At          time.Time
}

var _ shutdown.Node = (*Node)(nil)

// NewNode returns a node with pods that run.
func NewNode(pods ...*v1.Pod) *Node {
	return &Node{pods: slices.Clone(pods), delay: map[types.UID]time.Duration{}, ends: map[types.UID]time.Time{}}
}

// Add adds a pod that runs.
func (n *Node) Add(pod *v1.Pod) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pods = append(n.pods, pod)
}

// SetStopDelay sets the time that the pod takes to end, with its volumes. It ends at the end of its grace period
// at the latest.
func (n *Node) SetStopDelay(uid types.UID, d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.delay[uid] = d
}

// Active implements [shutdown.Node].
func (n *Node) Active() []*v1.Pod {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(n.pods), func(pod *v1.Pod) bool { return n.ended(pod.UID) })
}

// End implements [shutdown.Node].
func (n *Node) End(pod *v1.Pod, gracePeriod *int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	grace := podspec.GracePeriod(pod)
	if gracePeriod != nil {
		grace = *gracePeriod
	}
	end := time.Now().Add(min(n.delay[pod.UID], podspec.Seconds(grace)))
	if before, again := n.ends[pod.UID]; !again || end.Before(before) {
		n.ends[pod.UID] = end
	}
	n.told = append(n.told, End{pod.Name, grace, time.Now()})
}

// Ended implements [shutdown.Node].
func (n *Node) Ended(uid types.UID) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.ended(uid)
}

func (n *Node) ended(uid types.UID) bool {
	end, told := n.ends[uid]
	return told && !time.Now().Before(end)
}

// Ends returns the ends that were requested, in their order.
func (n *Node) Ends() []End {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.told)
}
