package tokens

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/cluster/internal/outage"
	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/runtime"
)

const (
	// maxUse is how long a token is used at most, and maxJitter how much earlier it is
	// refreshed. Both are kubelet's.
	maxUse    = 24 * time.Hour
	maxJitter = 10 * time.Second
	// minUse is the least time between two requests for a token, whatever its lifetime is: the
	// API's minimum for that is 10 minutes.
	minUse = time.Minute
	// maxRefreshes is the number of refreshes at the same time.
	maxRefreshes = 4
	// saveDelay is how long changes are collected before they are kept.
	saveDelay = time.Second
	// maxKept is the number of tokens of one pod that are kept, of up to maxToken bytes: a record that
	// is too large is not written, so that no pod would have tokens after a reboot. Any of a pod's
	// tokens are kept.
	maxKept  = 32
	maxToken = 16 << 10
)

// entry is a token. Only refreshAt and failures change; the mutex of Tokens guards them.
type entry struct {
	request  *authenticationv1.TokenRequest
	token    *authenticationv1.TokenRequest
	received time.Time
	lifetime time.Duration

	refreshAt time.Time
	// failures is the number of refreshes in a row that have failed.
	failures int
}

// newEntry returns the entry of a token that was received at a time.
func newEntry(request, token *authenticationv1.TokenRequest, received time.Time) *entry {
	e := &entry{request: request, token: token, received: received, lifetime: lifetimeOf(token)}
	// Divided first: the product would overflow for a lifetime of decades.
	e.refreshAt = received.Add(max(minUse, min(e.lifetime/10*8, maxUse)-rand.N(maxJitter)))
	return e
}

// lifetimeOf returns the lifetime that the API server has granted.
func lifetimeOf(token *authenticationv1.TokenRequest) time.Duration {
	seconds := int64(3600) // the default of the API
	if s := token.Spec.ExpirationSeconds; s != nil && *s > 0 {
		seconds = min(*s, 1<<32) // the API's maximum
	}
	return time.Duration(seconds) * time.Second
}

func (e *entry) expired(now time.Time) bool { return now.Sub(e.received) >= e.lifetime }

// Run refreshes tokens until ctx ends, and then returns nil. A second call returns an error
// that wraps [runtime.ErrAlreadyRunning].
func (t *Tokens) Run(ctx context.Context) error {
	if !t.started.CompareAndSwap(false, true) {
		return fmt.Errorf("tokens: %w", runtime.ErrAlreadyRunning)
	}
	t.load.Do(t.restore)
	if t.opts.Checkpoint != nil {
		var keeper sync.WaitGroup
		defer keeper.Wait()
		keeping, stop := context.WithCancel(context.WithoutCancel(ctx)) // until the last refresh has ended
		defer stop()
		saver := flow.Saver{Dirty: t.unsaved, Wait: saveDelay, Save: t.save}
		keeper.Go(func() { saver.Run(keeping) })
	}
	next := time.NewTimer(0)
	defer next.Stop()
	ended := outage.Ended(t.client)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-next.C:
		case <-t.changed:
		case <-ended:
			ended = outage.Ended(t.client)
			t.outageEnded(time.Now())
		}
		t.refresh(ctx, t.due(time.Now()))
		if wait, any := t.untilNext(time.Now()); any {
			next.Reset(wait)
		}
	}
}

// outageEnded repeats what has failed: refreshes at once, and other requests through the sync of
// their pods.
func (t *Tokens) outageEnded(now time.Time) {
	t.mu.Lock()
	for _, e := range t.entries {
		if e.failures > 0 {
			e.refreshAt = now
		}
	}
	waiting := t.waiting
	t.waiting = map[types.UID]struct{}{}
	t.mu.Unlock()
	if t.opts.Refreshed == nil {
		return
	}
	for pod := range waiting {
		t.opts.Refreshed(pod)
	}
}

// due returns the keys of the tokens that are to be refreshed.
func (t *Tokens) due(now time.Time) []key {
	t.mu.Lock()
	defer t.mu.Unlock()
	var due []key
	for k, e := range t.entries {
		if !e.refreshAt.After(now) {
			due = append(due, k)
		}
	}
	return due
}

// untilNext returns the time until the next refresh; false if none is due.
func (t *Tokens) untilNext(now time.Time) (wait time.Duration, any bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range t.entries {
		if d := e.refreshAt.Sub(now); !any || d < wait {
			wait, any = d, true
		}
	}
	return max(wait, 0), any
}

// refresh requests the tokens anew.
func (t *Tokens) refresh(ctx context.Context, keys []key) {
	var g errgroup.Group
	g.SetLimit(maxRefreshes)
	for _, k := range keys {
		g.Go(func() error {
			t.refreshOne(ctx, k)
			return nil
		})
	}
	_ = g.Wait()
}

func (t *Tokens) refreshOne(ctx context.Context, k key) {
	t.mu.Lock()
	e := t.entries[k]
	t.mu.Unlock()
	if e == nil || ctx.Err() != nil {
		return
	}
	_, err := t.request(ctx, k, e.request)
	if err == nil {
		if t.opts.Refreshed != nil && k.pod() != "" {
			t.opts.Refreshed(k.pod())
		}
		return
	}
	if ctx.Err() != nil {
		return
	}
	t.mu.Lock()
	if t.entries[k] != e { // the pod or the service account is gone
		t.mu.Unlock()
		return
	}
	if outage.Answered(err) && e.expired(time.Now()) {
		t.forget(k) // Token requests another one if it is needed
	}
	e.failures++
	first := e.failures == 1
	delay := flow.Backoff{Min: time.Second, Max: time.Minute}.After(e.failures)
	e.refreshAt = time.Now().Add(delay + rand.N(delay/2))
	t.mu.Unlock()
	if first {
		t.opts.Logger.Error(err, "Token of a service account cannot be refreshed; the present one is used on, and "+
			"it is tried again",
			"namespace", k.namespace, "serviceAccount", k.account, "pod", k.bound.Name, "podUID", k.bound.UID)
	}
}

// kept is a token in the checkpoint.
type kept struct {
	Namespace string                         `json:"namespace"`
	Account   string                         `json:"account"`
	Request   *authenticationv1.TokenRequest `json:"request"`
	Token     *authenticationv1.TokenRequest `json:"token"`
	Received  time.Time                      `json:"received"`
}

// restore reads the tokens of the last run of the agent.
func (t *Tokens) restore() {
	var list []kept
	if t.opts.Checkpoint == nil || !t.opts.Checkpoint.LoadState(state, &list) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, one := range list {
		if one.Request == nil || one.Token == nil || one.Token.Status.Token == "" {
			continue
		}
		now := time.Now()
		// With a monotonic reading, as if this agent had received it: the clock may be set back from now on.
		e := newEntry(one.Request, one.Token, now.Add(one.Received.Sub(now)))
		if one.Received.After(now) { // the clock was set back
			e.refreshAt = now
		}
		t.entries[keyOf(one.Namespace, one.Account, one.Request)] = e
	}
}

// save keeps the tokens for the next run of the agent.
func (t *Tokens) save() error {
	t.mu.Lock()
	list := make([]kept, 0, len(t.entries))
	ofPod := map[types.UID]int{}
	for k, e := range t.entries {
		if ofPod[k.pod()]++; ofPod[k.pod()] > maxKept || len(e.token.Status.Token) > maxToken {
			continue
		}
		list = append(list, kept{k.namespace, k.account, e.request, e.token, e.received})
	}
	t.mu.Unlock()
	slices.SortFunc(list, func(a, b kept) int { return strings.Compare(a.Token.Status.Token, b.Token.Status.Token) })
	t.opts.Checkpoint.KeepState(state, list)
	return nil
}

// state is the name in the checkpoint.
const state = "tokens"
