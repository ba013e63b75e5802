package kubeletkit

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// minLoopStale is how old the last round of the loop may be before the agent
// counts as unhealthy, at least (kubelet: minimum of SyncLoopHealthCheck).
const minLoopStale = 5 * time.Minute

// runChecks joins the errors of the checks.
func (a *Agent) runChecks(checks *[]check) error {
	a.mu.Lock()
	list := *checks // never changed in place
	a.mu.Unlock()
	var errs []error
	for _, c := range list {
		if err := c.run(); err != nil {
			errs = append(errs, fmt.Errorf("check %s: %w", c.name, err))
		}
	}
	return errors.Join(errs...)
}

// Healthy returns nil if the agent works. The error joins what is wrong: the loop has made
// no round for twice the sync frequency, and at least 5 minutes, which is also so if the
// runtime has not answered for that long; deliveries to the status sink hang; an added
// check fails. The time to the first round begins with Run. A restart of the agent may help.
func (a *Agent) Healthy() error {
	var errs []error
	if err := a.loopHealthy(); err != nil {
		errs = append(errs, err)
	}
	if err := a.parts.Status.Healthy(); err != nil {
		errs = append(errs, fmt.Errorf("status delivery: %w", err))
	}
	return errors.Join(append(errs, a.runChecks(&a.healthy))...)
}

// loopHealthy returns an error if the loop has made no round for too long.
func (a *Agent) loopHealthy() error {
	a.mu.Lock()
	started := a.started
	a.mu.Unlock()
	last := a.loop.LastIteration()
	stale := time.Since(last)
	if last.IsZero() {
		stale = time.Since(started)
	}
	switch {
	case started.IsZero() || stale <= max(2*a.opts.Sync.Frequency, minLoopStale):
		return nil
	case last.IsZero():
		return fmt.Errorf("the agent was started %s ago, and its sync loop has made no round yet", stale.Round(time.Second))
	default:
		return fmt.Errorf("the sync loop made its last round %s ago", stale.Round(time.Second))
	}
}

// Ready returns nil if the agent can start pods: all sources have delivered, the runtime
// answers, the PLEG is healthy, and all added checks pass. The error joins what is
// missing.
func (a *Agent) Ready() error {
	var errs []error
	if !a.Synced() {
		errs = append(errs, a.notSynced())
	}
	if err := a.RuntimeReady(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(append(errs, a.runChecks(&a.ready))...)
}

// errShuttingDown has the words of kubelet's node shutdown.
var errShuttingDown = errors.New("node is shutting down")

// RuntimeReady returns nil if the runtime answers and is ready, its network too, the PLEG is
// healthy, and the agent is not being drained. The error joins what is missing. Unlike
// [Agent.Ready], it does not wait for sources.
func (a *Agent) RuntimeReady() error { return a.RuntimeReadyWithin(0) }

// RuntimeReadyWithin is like [Agent.RuntimeReady], except that a runtime that does not answer counts
// as it was at its last answer, until that is older than the duration. It is what a node of a cluster
// reports as its readiness: a restart of the runtime takes a few seconds, and the pods run on.
func (a *Agent) RuntimeReadyWithin(patience time.Duration) error {
	var drained error
	if a.parts.PodWorkers.State("").Drained {
		drained = errShuttingDown
	}
	return errors.Join(a.loop.RuntimeErrorWithin(patience), a.parts.PLEG.Healthy(), drained)
}

// notSynced returns an error with the names of the sources that have not delivered, as far
// as they are known.
func (a *Agent) notSynced() error {
	var missing []string
	for _, source := range a.parts.PodConfig.Sources() {
		if !source.Seen {
			missing = append(missing, source.Name)
		}
	}
	if len(missing) == 0 {
		return errors.New("not all sources have delivered their pods")
	}
	return fmt.Errorf("not all sources have delivered their pods; missing: %s", strings.Join(missing, ", "))
}

// Synced reports whether every source has delivered the pods that are to run, and the
// agent has taken them in: [Agent.Pods] has them.
func (a *Agent) Synced() bool { return a.loop.Synced() }

// networkReady returns an error while pods with a network of their own cannot be started.
func (a *Agent) networkReady() error {
	if err := a.loop.RuntimeError(); errors.Is(err, runtime.ErrNetworkNotReady) {
		return err
	}
	return nil
}
