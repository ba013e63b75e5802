package eviction

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// The times that a job may take.
const (
	reclaimTimeout = time.Minute
	measureTimeout = 10 * time.Second
)

// job does work beside the loop, so that other resources are defended meanwhile, and delivers its result.
func (r *run) job(ctx context.Context, d Decision, timeout time.Duration, f func(ctx context.Context) []Pod) {
	r.begun = true
	r.jobs.Go(func() {
		limited, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		pods := f(limited)
		select { // there is room for all
		case r.results <- &Result{Condition: d.Condition, Pods: pods, At: time.Now()}:
		case <-ctx.Done():
		}
	})
}

// attempt reports the beginning of an attempt to free a resource.
func (r *run) attempt(d Decision) {
	r.log.Info("A threshold of eviction is met", "threshold", d.Threshold.String(),
		"available", amountText(d.Threshold.Signal.Resource(), d.Reading.Available),
		"gracePeriod", d.Threshold.GracePeriod)
	r.node.Event(runtime.Event{Type: v1.EventTypeWarning, Reason: reasonThresholdMet,
		Message: "Attempting to reclaim " +
			string(d.Threshold.Signal.Resource()), Logged: true})
}

// reclaim begins to remove what no pod uses.
func (r *run) reclaim(ctx context.Context, d Decision) {
	r.attempt(d)
	r.job(ctx, d, reclaimTimeout, func(ctx context.Context) []Pod {
		remove := func(what string, f func(context.Context) error) {
			if err := runtime.Recover(func() error { return f(ctx) }); err != nil && ctx.Err() == nil {
				r.log.Info("Not all could be removed that no pod uses", "what", what, "reason", err.Error())
			}
		}
		if d.DeadContainers {
			remove("containers", r.node.DeleteUnusedContainers)
		}
		if d.UnusedImages {
			remove("images", r.node.DeleteUnusedImages)
		}
		return nil
	})
}

// measure begins to measure the pods.
func (r *run) measure(ctx context.Context, d Decision) {
	if c, i := reclaims(d.Threshold.Signal, r.rules.Layout); !c && !i {
		r.attempt(d)
	}
	r.job(ctx, d, measureTimeout, func(ctx context.Context) (pods []Pod) {
		err := runtime.Recover(func() error {
			pods = r.pods()
			return r.meter.Measure(ctx, r.node, d.Threshold.Signal, pods)
		})
		if err != nil {
			r.log.Info("Not all pods could be measured", "signal", d.Threshold.Signal, "reason", err.Error())
		}
		return pods
	})
}

// evict evicts the victim.
func (r *run) evict(d Decision) {
	pod := d.Victim.Pod
	ref := runtime.RefOf(pod)
	name := d.Threshold.Signal.Resource()
	detail := fmt.Sprintf("%s, available: %s of %s", d.Threshold, amountText(name, d.Reading.Available),
		amountText(name, d.Reading.Capacity))
	if used, ok := d.Victim.Usage.of(d.Threshold.Signal, r.rules.Layout); ok {
		detail += ", used by the pod: " + amountText(name, used)
	}
	r.node.Record(runtime.Record{Pod: ref, Stage: runtime.StageDecided, Kind: runtime.KindEvict,
		Reason: string(d.Threshold.Signal), Message: detail, Duration: time.Duration(d.GracePeriod) * time.Second})
	err := runtime.Recover(func() error {
		return r.node.Evict(pod.UID, runtime.Eviction{Reason: Reason, Message: d.Message, GracePeriod: &d.GracePeriod,
			Annotations: d.Annotations})
	})
	if err != nil { // it is gone, which the next round shows
		r.log.Info("A pod could not be evicted", "pod", ref, "reason", err.Error())
		return
	}
	r.log.Info("A pod is evicted", "pod", ref, "threshold", d.Threshold.String(), "available", d.Reading.Available,
		"capacity", d.Reading.Capacity, "gracePeriod", d.GracePeriod, "message", d.Message)
	signal, age := d.Threshold.Signal, time.Since(d.Reading.At)
	r.node.Measure(Eviction{signal, age})
}

// report reports the outcome of the last eviction, and that nothing can be evicted.
func (r *run) report(d Decision) {
	if d.NoVictim {
		r.logOnce("victims", "A threshold of eviction is met, but no pod may be evicted whose end would free something",
			fmt.Errorf("threshold %s", d.Threshold))
	} else if len(d.Conditions) == 0 {
		delete(r.logged, "victims")
	}
	o := d.Outcome
	if o == nil {
		return
	}
	ref, name := runtime.RefOf(o.Pod), o.Threshold.Signal.Resource()
	rec := runtime.Record{Pod: ref, Stage: runtime.StageDone, Kind: runtime.KindEvict,
		Reason: string(o.Threshold.Signal), Duration: o.Took}
	if !o.Ended {
		rec.Error = "the pod has not ended in time"
		r.node.Record(rec)
		r.node.Event(runtime.Event{Pod: ref, Type: v1.EventTypeWarning, Reason: lifecycle.ReasonExceededGracePeriod,
			Message: lifecycle.MessageExceededGracePeriod, Logged: true})
		r.log.Info("An evicted pod has not ended in time; another one may have to go", "pod", ref, "after", o.Took)
		return
	}
	freed, now := "", ""
	if !o.After.At.IsZero() {
		freed, now = amountText(name, o.Freed()), amountText(name, o.After.Available)
		rec.Message = freed
	}
	r.node.Record(rec)
	r.log.Info("An evicted pod has ended", "pod", ref, "after", o.Took, "resource", name,
		"freed", freed, "available", now)
	message := fmt.Sprintf("Evicted pod %s/%s has ended after %s", ref.Namespace, ref.Name,
		o.Took.Round(10*time.Millisecond))
	if freed != "" {
		message += fmt.Sprintf(", freed %s: %s is %s", freed, o.Threshold.Signal, now)
	}
	for _, about := range []runtime.PodRef{ref, {}} {
		r.node.Event(runtime.Event{Pod: about, Type: v1.EventTypeNormal, Reason: reasonCompleted, Message: message})
	}
}
