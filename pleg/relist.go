package pleg

import (
	"context"
	"slices"
	"time"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// listCall is a list call under way, or its result.
type listCall struct {
	window window
	pods   []*runtime.Pod
	err    error
	report Relisted
}

// startRelist starts the list call of a relist. Statuses that other users have read into
// the cache until now are older than the list, so they are compared first.
func (g *generator) startRelist(ctx context.Context, now time.Time) {
	select {
	case <-g.requests: // this relist serves all requests until now
	default:
	}
	call := &listCall{report: Relisted{Began: now, Interval: g.schedule.begin(now)}}
	g.health.called()
	call.window.began = g.cache.Now()
	g.podStates.beginRelist(g.cache.Seen(""))
	g.tasks.Go(func() {
		lctx, cancel := context.WithTimeout(ctx, g.opts.ListTimeout)
		defer cancel()
		call.pods, call.err = runtime.ListPods(lctx, g.lister)
		call.window.ended = g.cache.Now()
		call.report.Took, call.report.Err = time.Since(now), call.err
		if call.err != nil && endsSoon(ctx) {
			<-ctx.Done()
			return
		}
		select {
		case g.listed <- call:
		case <-ctx.Done():
		}
	})
}

// endsSoon reports whether the deadline of ctx, if it has one, is a second away or has passed. The runtime has that
// deadline, too, and may answer that it has passed before it does here: that is no failure of the runtime.
func endsSoon(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ok && time.Until(deadline) < time.Second
}

// finishRelist handles the result of the list call.
func (g *generator) finishRelist(call *listCall) {
	if call.err != nil {
		g.podStates.relistFailed()
		g.schedule.failed(time.Now())
		if g.health.failed(call.err) {
			g.opts.Logger.Error(call.err, "Cannot list the pods of the runtime; trying again",
				"period", g.opts.RelistPeriod)
		}
	} else {
		unreported := g.podStates.relisted(call.pods, call.window, g.cache.ForgetUntil)
		g.cache.Listed(call.pods, call.window.began)
		// A hint about a held pod may have come: it is deferred.
		unreported = slices.DeleteFunc(unreported, func(ref runtime.PodRef) bool { return g.stream.defers(ref.UID) })
		now := time.Now()
		g.schedule.succeeded(unreported, now)
		if g.health.succeeded(g.schedule.relistAt.Sub(now)) {
			g.opts.Logger.Info("The runtime lists its pods again")
		}
	}
	call.report.Due = g.schedule.relistAt
	g.opts.Measure.Emit(call.report)
}
