package runtime

import (
	"context"
	"fmt"
)

// ListPods returns the list of the runtime. If the runtime panics, the error is a [*PanicError]. A list with a nil pod
// is an error, too.
func ListPods(ctx context.Context, rt Lister) (pods []*Pod, err error) {
	err = Recover(func() (err error) {
		pods, err = rt.ListPods(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	for i, pod := range pods {
		if pod == nil {
			return nil, fmt.Errorf("element %d of %d in the list of pods of the runtime is nil", i, len(pods))
		}
	}
	return pods, nil
}

// ListInspector returns an Inspector for a runtime that implements Lister alone, so that
// a Cache and a PLEG can be used on it. Each inspection is one call of ListPods. The
// status has what the list has of the pod: names, IDs, states, creation times and hashes,
// but no addresses, exit codes or restart counts.
func ListInspector(rt Lister) Inspector { return listInspector{rt} }

type listInspector struct{ rt Lister }

func (l listInspector) InspectPod(ctx context.Context, ref PodRef) (*PodStatus, error) {
	pods, err := ListPods(ctx, l.rt)
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
