package runtime

import "context"

// ListInspector returns an Inspector for a runtime that implements Lister alone, so that
// a Cache and a PLEG can be used on it. Each inspection is one call of ListPods. The
// status has what the list has of the pod: names, IDs, states, creation times and hashes,
// but no addresses, exit codes or restart counts.
func ListInspector(rt Lister) Inspector { return listInspector{rt} }

type listInspector struct{ rt Lister }

func (l listInspector) InspectPod(ctx context.Context, ref PodRef) (*PodStatus, error) {
	pods, err := l.rt.ListPods(ctx)
	if err != nil {
		return nil, err
	}
	status := &PodStatus{PodRef: ref}
	for _, pod := range pods {
		if pod.UID != ref.UID {
			continue
		}
		status.PodRef = pod.PodRef
		for _, s := range pod.Sandboxes {
			status.Sandboxes = append(status.Sandboxes, SandboxStatus{Sandbox: s})
		}
		for _, c := range pod.Containers {
			status.Containers = append(status.Containers, ContainerStatus{Container: c})
		}
	}
	return status, nil
}
