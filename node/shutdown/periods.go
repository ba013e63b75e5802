package shutdown

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// NoLimit is the grace period of a [Period] whose pods have their own grace periods.
const NoLimit time.Duration = math.MaxInt64

// criticalPriority is the lowest priority of the system's priority classes (kubelet:
// scheduling.SystemCriticalPriority).
const criticalPriority = 2_000_000_000

// Period is the time that the pods of a range of priorities have to end.
type Period struct {
	// Priority is the lowest priority of the range. Pods below the lowest of all periods belong to that one.
	Priority int32
	// GracePeriod is in whole seconds, or [NoLimit]. With 0, pods are killed and not waited for.
	GracePeriod time.Duration
}

// Periods are the periods of a node, the lowest priority first. [ByPriority], [Classes] and [Unlimited] make
// them.
type Periods []Period

// ByPriority returns the periods in their order.
func ByPriority(periods ...Period) Periods {
	sorted := slices.Clone(periods)
	slices.SortStableFunc(sorted, func(a, b Period) int { return cmp.Compare(a.Priority, b.Priority) })
	return sorted
}

// Classes returns two periods: critical for pods with at least the priority of the class
// system-cluster-critical, and before it the rest of total for all others. It returns nil if total is 0, or
// critical is more than total, as kubelet does.
func Classes(total, critical time.Duration) Periods {
	if total <= 0 || critical < 0 || critical > total {
		return nil
	}
	return Periods{
		{Priority: 0, GracePeriod: (total - critical).Truncate(time.Second)},
		{Priority: criticalPriority, GracePeriod: critical.Truncate(time.Second)},
	}
}

// Unlimited returns the two periods of [Classes] without limits: critical pods end after all others, and each pod
// has its own grace period.
func Unlimited() Periods {
	return Periods{{Priority: 0, GracePeriod: NoLimit}, {Priority: criticalPriority, GracePeriod: NoLimit}}
}

// Validate returns an error that joins what is wrong with the periods.
func (p Periods) Validate() error {
	var errs []error
	for i, period := range p {
		switch g := period.GracePeriod; {
		case g == NoLimit:
		case g < 0 || g%time.Second != 0:
			errs = append(errs, fmt.Errorf("the grace period of priority %d is %s: it must be whole seconds, and "+
				"not below 0", period.Priority, g))
		}
		if i > 0 && p[i-1].Priority > period.Priority {
			errs = append(errs,
				fmt.Errorf("priority %d follows %d: the periods must be in the order of their priorities",
					period.Priority, p[i-1].Priority))
		}
	}
	return errors.Join(errs...)
}

// Total returns the sum of the periods: the time that the machine has to wait. It is [NoLimit] if one of them is.
func (p Periods) Total() time.Duration {
	var sum time.Duration
	for _, period := range p {
		if sum > NoLimit-period.GracePeriod {
			return NoLimit
		}
		sum += period.GracePeriod
	}
	return sum
}

// Within returns the periods, or if their total is more than the limit, periods that are shorter in proportion. So
// the last group keeps its share of the time that the machine waits.
func (p Periods) Within(limit time.Duration) Periods {
	total := p.Total()
	if total <= limit || total == NoLimit {
		return p
	}
	short := slices.Clone(p)
	for i := range short {
		share := float64(short[i].GracePeriod) / float64(total)
		short[i].GracePeriod = time.Duration(share * float64(limit)).Truncate(time.Second)
	}
	return short
}

// Group has the pods that end together.
type Group struct {
	Period
	Pods []*v1.Pod
}

// Groups returns the groups of the pods in the order in which they end. Groups without pods are left out.
func (p Periods) Groups(pods []*v1.Pod) []Group {
	all := make([]Group, len(p))
	for i, period := range p {
		all[i].Period = period
	}
	for _, pod := range pods {
		if i := p.index(pod); i >= 0 {
			all[i].Pods = append(all[i].Pods, pod)
		}
	}
	return slices.DeleteFunc(all, func(g Group) bool { return len(g.Pods) == 0 })
}

// index returns the period of the pod: the last one that does not begin above its priority, or the first. It is -1
// if there is none.
func (p Periods) index(pod *v1.Pod) int {
	var priority int32
	if pod.Spec.Priority != nil {
		priority = *pod.Spec.Priority
	}
	i, same := slices.BinarySearchFunc(p, priority,
		func(period Period, priority int32) int { return cmp.Compare(period.Priority, priority) })
	if same || i == 0 && len(p) > 0 {
		return i
	}
	return i - 1
}

// Grace returns the grace period in seconds with which a pod of the period ends: the shorter of the pod's own and
// that of the period. It is nil without a limit: the pod's own counts.
func (p Period) Grace(pod *v1.Pod) *int64 {
	if p.GracePeriod == NoLimit {
		return nil
	}
	grace := int64(p.GracePeriod / time.Second)
	if own := pod.Spec.TerminationGracePeriodSeconds; own != nil {
		grace = min(grace, *own)
	}
	return &grace
}

// volumesTime is how long the volumes of pods without a limit may take after the grace periods.
const volumesTime = 30 * time.Second

// wait returns how long the pods of a group are waited for.
func (g Group) wait() time.Duration {
	if g.GracePeriod != NoLimit {
		return g.GracePeriod
	}
	var longest int64
	for _, pod := range g.Pods {
		longest = max(longest, podspec.GracePeriod(pod))
	}
	return podspec.Seconds(longest) + volumesTime
}
