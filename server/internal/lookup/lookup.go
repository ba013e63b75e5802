// Package lookup finds the pod and the container that a request is about, in the same way
// for all handlers.
package lookup

import (
	"net/http"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// Pods has the node's pods with their status, those that are not desired any more, and the UIDs of mirror pods: see
// server.Agent.
type Pods interface {
	Pods() []*v1.Pod
	Terminating() []*v1.Pod
	TranslateUID(uid types.UID) types.UID
}

// Pod returns the pod of the name, or nil. If uid is not empty, the pod has this UID or is
// the static pod of the mirror pod with this UID. Without a UID, a pod that is not terminating
// comes before one that is: a name may have passed from one UID to another. It never returns
// a mirror pod.
func Pod(pods Pods, namespace, name string, uid types.UID) *v1.Pod {
	if uid != "" {
		uid = pods.TranslateUID(uid)
	}
	matches := func(p *v1.Pod) bool {
		return p.Name == name && p.Namespace == namespace && (uid == "" || p.UID == uid) && !podspec.IsMirror(p)
	}
	var found *v1.Pod
	for _, p := range pods.Pods() {
		if matches(p) && (found == nil || found.DeletionTimestamp != nil && p.DeletionTimestamp == nil) {
			found = p
		}
	}
	if found != nil {
		return found
	}
	for _, p := range slices.Backward(pods.Terminating()) { // the last one that matches
		if matches(p) {
			return p
		}
	}
	return nil
}

// Request returns the pod and the container that the path of a request names. The pattern of
// the handler has {namespace} and {pod}, and it may have {uid} and {container}. A pod or a
// container that does not exist is nil. The container is the part of the spec that all kinds
// of containers have in common.
func Request(pods Pods, req *http.Request) (*v1.Pod, *v1.Container) {
	pod := Pod(pods, req.PathValue("namespace"), req.PathValue("pod"), types.UID(req.PathValue("uid")))
	if pod == nil {
		return nil, nil
	}
	container, _ := podspec.FindContainer(&pod.Spec, req.PathValue("container"))
	return pod, container
}
