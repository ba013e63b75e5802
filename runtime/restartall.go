package runtime

import (
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// RestartingAll returns the names of the containers because of which all containers of the pod are being restarted
// (KEP-5532): the newest instance of each has exited with a code for which a restart rule requests it. Their instances
// are the last ones to be removed, so that the runtime alone shows that a restart is not complete. status may be nil.
func RestartingAll(pod *v1.Pod, status *PodStatus) (names []string) {
	if status == nil || !podspec.MayRestartAll(pod) {
		return nil
	}
	for kind, c := range podspec.Containers(&pod.Spec) {
		if kind == podspec.EphemeralContainer {
			continue
		}
		if n := status.Newest(c.Name); n != nil && RestartsAll(c, kind, n) {
			names = append(names, c.Name)
		}
	}
	return names
}

// RestartsAll reports whether an instance of the container has exited with a code for which a restart rule restarts all
// containers of the pod. An init container in which a process was killed because of its memory has failed, also if its
// first process returned 0.
func RestartsAll(c *v1.Container, kind podspec.ContainerKind, n *ContainerStatus) bool {
	const killed = 128 + 9
	code := n.ExitCode
	if kind == podspec.InitContainer && code == 0 && n.Reason == "OOMKilled" {
		code = killed
	}
	return n.State == ContainerExited && podspec.RestartsAll(c, code)
}
