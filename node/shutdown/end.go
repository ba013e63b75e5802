package shutdown

import (
	"context"
	"slices"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/logging"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// Node has the pods, and ends them. The methods must not block.
type Node interface {
	// Active returns the pods that run or are to run, and those that are ending. They are not changed.
	Active() []*v1.Pod
	// End requests the end of the pod. The grace period is in seconds; nil means that of the pod. For a pod
	// that is ending already, it can only become shorter.
	End(pod *v1.Pod, gracePeriod *int64)
	// Ended reports whether nothing of the pod runs any more, and its volumes are taken down.
	Ended(uid types.UID) bool
}

// lookPeriod is the time between two looks at the pods that are ending.
const lookPeriod = 100 * time.Millisecond

// End ends the pods of the node, group by group, and returns those that have not ended in their period. If ctx
// ends first, the pods of later groups go on, and the error is the cause.
// A zero log is that of package slog.
func End(ctx context.Context, node Node, periods Periods, log logr.Logger) (left []*v1.Pod, err error) {
	log = logging.OrDefault(log)
	var told []*v1.Pod
	known := map[types.UID]bool{} // those of told
	for i := range periods {
		if ctx.Err() != nil {
			return running(node, told), context.Cause(ctx)
		}
		group := Group{Period: periods[i]}
		for _, pod := range node.Active() {
			if !known[pod.UID] && periods.index(pod) <= i {
				group.Pods = append(group.Pods, pod)
			}
		}
		if len(group.Pods) == 0 {
			continue
		}
		log.Info("Pods are ending", "priority", group.Priority, "gracePeriod", group.wait(), "pods", refs(group.Pods))
		for _, pod := range group.Pods {
			told, known[pod.UID] = append(told, pod), true
			node.End(pod, group.Grace(pod))
		}
		late, err := await(ctx, node, group)
		if len(late) > 0 {
			log.Info("Pods have not ended yet", "priority", group.Priority, "pods", refs(late))
		}
		if err != nil {
			return running(node, told), err
		}
	}
	return running(node, told), nil
}

// await waits until the pods of the group have ended, and returns those that have not when its time has passed.
func await(ctx context.Context, node Node, group Group) (late []*v1.Pod, err error) {
	limit := time.NewTimer(group.wait())
	defer limit.Stop()
	tick := time.NewTicker(lookPeriod)
	defer tick.Stop()
	for {
		late = running(node, group.Pods)
		if len(late) == 0 {
			return nil, nil
		}
		select {
		case <-ctx.Done():
			return late, context.Cause(ctx)
		case <-limit.C:
			return late, nil
		case <-tick.C:
		}
	}
}

// running returns the pods that have not ended.
func running(node Node, pods []*v1.Pod) []*v1.Pod {
	return slices.DeleteFunc(slices.Clone(pods), func(pod *v1.Pod) bool { return node.Ended(pod.UID) })
}

func refs(pods []*v1.Pod) (out []runtime.PodRef) {
	for _, pod := range pods {
		out = append(out, runtime.RefOf(pod))
	}
	return out
}
