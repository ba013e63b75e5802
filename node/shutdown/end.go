package shutdown

import (
	"context"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// lookPeriod is the time between two looks at the pods that are ending.
const lookPeriod = 100 * time.Millisecond

// End ends the pods of the node, group by group, and returns those that have not ended in their period. If ctx
// ends first, the pods of later groups go on, and the error is the cause.
func End(ctx context.Context, node lifecycle.Node, periods Periods) (left []*v1.Pod, err error) {
	log := node.Logger()
	var told []*v1.Pod
	known := map[types.UID]bool{} // those of told
	for i := range periods {
		if ctx.Err() != nil {
			return running(node, told), context.Cause(ctx)
		}
		group := Group{Period: periods[i]}
		for _, pod := range running(node, node.Pods()) {
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
func await(ctx context.Context, node lifecycle.Node, group Group) (late []*v1.Pod, err error) {
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
func running(node lifecycle.Node, pods []*v1.Pod) []*v1.Pod {
	return slices.DeleteFunc(slices.Clone(pods), func(pod *v1.Pod) bool {
		st := node.State(pod.UID)
		return !st.Known || st.Finished
	})
}

func refs(pods []*v1.Pod) (out []runtime.PodRef) {
	for _, pod := range pods {
		out = append(out, runtime.RefOf(pod))
	}
	return out
}
