package cluster

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// ended reports whether the agent has finished the pod, see [podstatus.Options].
func (n *Node) ended(uid types.UID) bool {
	// A pod is desired before it has a worker, so the worker is looked up last.
	desired, ok := n.agent.DesiredPod(uid)
	st := n.agent.State(uid)
	switch {
	case ok && podspec.IsStatic(desired):
		// The pod of the API server does not reach the agent, because a static pod has its UID.
		// The worker is that of the static pod. It has stopped what ran under the UID before.
		stopped := st.Static && !st.Waiting || !st.Known && !st.MayRun && !n.runs(uid)
		return stopped && n.deleted(uid) != nil
	case st.Known:
		return st.Finished
	case st.MayRun:
		return false // from the time of an earlier agent
	case ok:
		return false // it gets a worker, which takes it down
	}
	// It does not reach the agent while a static pod has its name.
	pod := n.deleted(uid)
	if pod == nil {
		return false
	}
	static, _ := n.staticPod(pod.Namespace, pod.Name)
	return static != nil && !n.runs(uid)
}

// deleted returns the pod of the API server with the UID if it is to be deleted and no mirror
// pod, and nil otherwise.
func (n *Node) deleted(uid types.UID) *v1.Pod {
	pod, ok := n.source.ByUID(uid)
	if !ok || pod.DeletionTimestamp == nil || podspec.IsMirror(pod) {
		return nil
	}
	return pod
}

// runs reports whether something of the pod ran when the runtime was read last.
func (n *Node) runs(uid types.UID) bool {
	status, ok := n.agent.RuntimeStatus(uid)
	return ok && status.Running()
}
