package users

import (
	"fmt"
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// The reasons of pods that are refused.
const (
	// ReasonUnsupported is that of a pod whose runtime handler does not support user namespaces.
	ReasonUnsupported = "UserNamespacesNotSupported"
	// ReasonForbidden is that of a pod that requests something of the host which the API does not allow it.
	ReasonForbidden = "UserNamespacesForbidden"
)

// Admit refuses a pod with hostUsers: false that requests what the API forbids it, or whose runtime
// handler does not support user namespaces. A pod that has a range already is not refused for its handler, so
// that it does not end, and no pod is before the runtime has reported its handlers. It implements [lifecycle.Admitter].
func (m *Manager) Admit(req lifecycle.AdmitRequest) (lifecycle.AdmitResponse, error) {
	none := lifecycle.AdmitResponse{}
	if req.Held != nil || !podspec.HasUserNamespace(req.Pod) {
		return none, nil
	}
	if field := forbidden(&req.Pod.Spec); field != "" {
		return none, lifecycle.Refuse(ReasonForbidden, field+" is forbidden when `hostUsers` is false")
	}
	if known, err := m.supports(req.Pod); known && err != nil && !m.hasRecord(req.Pod) {
		return none, lifecycle.Refuse(ReasonUnsupported, err.Error())
	}
	return none, nil
}

// forbidden returns the field that the API does not allow a pod with hostUsers: false, or "".
func forbidden(spec *v1.PodSpec) string {
	switch {
	case spec.HostNetwork:
		return "spec.hostNetwork"
	case spec.HostPID:
		return "spec.hostPID"
	case spec.HostIPC:
		return "spec.hostIPC"
	}
	for _, c := range podspec.Containers(spec) {
		if len(c.VolumeDevices) > 0 {
			return fmt.Sprintf("volumeDevices of container %q", c.Name)
		}
	}
	return ""
}

// supports returns whether it is known what the runtime handler of the pod supports, and an error in kubelet's words if
// it does not support user namespaces.
func (m *Manager) supports(pod *v1.Pod) (known bool, err error) {
	if m.opts.Features == nil {
		return false, nil
	}
	handlers := m.opts.Features().Handlers
	if handlers == nil { // the runtime was not asked yet
		return false, nil
	}
	handler := ""
	if class := pod.Spec.RuntimeClassName; class != nil && *class != "" {
		handler = *class
		if m.opts.RuntimeHandler != nil {
			if handler, err = m.opts.RuntimeHandler(*class); err != nil {
				return false, nil // the runtime returns the error
			}
		}
	}
	for _, h := range handlers {
		if h.Name == handler && h.UserNamespaces {
			return true, nil
		}
	}
	if handler != "" {
		return true,
			fmt.Errorf("can't set `spec.hostUsers: false`, RuntimeClass handler %q does not support user namespaces",
				handler)
	}
	return true, fmt.Errorf("can't set `spec.hostUsers: false`, runtime does not support user namespaces")
}

// hasRecord reports whether the pod has a record, also a damaged one.
func (m *Manager) hasRecord(pod *v1.Pod) bool {
	_, err := os.Lstat(filepath.Join(m.podsDir, string(pod.UID), recordName))
	return err == nil
}
