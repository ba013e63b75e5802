package podcertificates

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/cluster/internal/listwatch"
	"github.com/kubeletkit/kubeletkit/cluster/internal/outage"
	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/runtime"
)

const (
	// requestTimeout is the time limit of one call.
	requestTimeout = 30 * time.Second
	// maxRequests is the number of requests at the same time, and maxRound that of those after which
	// others have their turn.
	maxRequests = 4
	maxRound    = 16
	// lostAfter is the time after which a request that the watch has not delivered counts as deleted.
	// overdueAfter is the time after which a refresh that was due counts as overdue. Both are kubelet's.
	lostAfter    = 10 * time.Minute
	overdueAfter = 10 * time.Minute
	// maxJitter is the longest delay of a refresh, kubelet's.
	maxJitter = 5 * time.Minute
	// minUse is the least time between a certificate and its refresh: clocks may differ.
	minUse = time.Minute
	// clockPeriod is how often the times of certificates are compared with the clock, which may jump to them.
	clockPeriod = time.Minute
)

// Run requests and refreshes certificates until ctx ends, and then returns nil. A second call
// returns an error that wraps [runtime.ErrAlreadyRunning].
func (c *Certificates) Run(ctx context.Context) error {
	if !c.started.CompareAndSwap(false, true) {
		return fmt.Errorf("podcertificates: %w", runtime.ErrAlreadyRunning)
	}
	defer c.waitForObserver()
	select {
	case <-ctx.Done():
		return nil
	case <-c.needed:
	}
	var watch sync.WaitGroup
	defer watch.Wait()
	watch.Go(func() {
		listwatch.Run(ctx, listwatch.Resource{
			Name: "podcertificaterequests", Client: c.server.client, API: c.server.API(),
			FieldSelector: "spec.nodeName=" + c.nodeName, MaxBackoff: 30 * time.Second,
			Failed: c.readFailed,
		}, (*store)(c))
	})
	// A request without a watch has no answer.
	select {
	case <-ctx.Done():
		return nil
	case <-c.read:
	}
	next := time.NewTimer(0)
	defer next.Stop()
	ended := outage.Ended(c.server.client)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-next.C:
		case <-c.changed:
		case <-ended:
			ended = outage.Ended(c.server.client)
			c.outageEnded(time.Now())
		}
		due, events, at := c.due(time.Now())
		if !at.IsZero() {
			next.Reset(min(time.Until(at), clockPeriod))
		}
		for _, e := range events {
			c.opts.Event.Emit(e)
		}
		due = fair(due)
		if len(due) > maxRound {
			due = due[:maxRound]
			next.Reset(0)
		}
		c.requestAll(ctx, due)
	}
}

// outageEnded ends the back-off of all projections.
func (c *Certificates) outageEnded(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.projections {
		if p.retryAt.After(now) {
			p.retryAt = now
		}
	}
}

func (c *Certificates) readFailed(err error, first bool) {
	c.mu.Lock()
	c.readErr = err
	c.mu.Unlock()
	if first {
		c.opts.Logger.Error(err, "Requests for pod certificates cannot be read from the API server; it is tried again")
	}
}

// requestAt returns when a request of the projection is to be made or repeated. mu is held.
func (p *projection) requestAt() (at time.Time, ok bool) {
	switch {
	case p.refused != nil || p.pending != nil && p.pending.seen:
		return at, false
	case p.pending != nil && p.pending.sent:
		return p.pending.lostAt, true
	case p.issued != nil && p.pending == nil && p.issued.refreshAt.After(p.retryAt):
		return p.issued.refreshAt, true
	default:
		return p.retryAt, true
	}
}

// due returns the projections for which a request is to be made now, events that are due, and
// when something is due next; zero if nothing will be.
func (c *Certificates) due(now time.Time) (due []*projection, events []runtime.Event, next time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	reached := func(at time.Time) bool {
		if !at.After(now) {
			return true
		}
		if next.IsZero() || at.Before(next) {
			next = at
		}
		return false
	}
	for _, p := range c.projections {
		if at, ok := p.requestAt(); ok && reached(at) {
			due = append(due, p)
		}
		if p.issued == nil || p.refused != nil {
			continue
		}
		if at := &p.issued.overdueAt; !at.IsZero() && reached(*at) {
			*at = time.Time{}
			events = append(events, p.warning("CertificateOverdueForRefresh", "PodCertificate refresh overdue"))
		}
		if at := &p.issued.expiredAt; !at.IsZero() && reached(*at) {
			*at = time.Time{}
			events = append(events, p.warning("CertificateExpired", "PodCertificate expired"))
		}
	}
	return due, events, next
}

// fair orders projections so that those of one pod come in turn with those of others: a pod may have
// thousands of them, each of which takes a second to make a key.
func fair(due []*projection) []*projection {
	turn, ofPod := make(map[*projection]int, len(due)), map[types.UID]int{}
	for _, p := range due {
		turn[p] = ofPod[p.key.pod]
		ofPod[p.key.pod]++
	}
	slices.SortStableFunc(due, func(a, b *projection) int { return cmp.Compare(turn[a], turn[b]) })
	return due
}

func (p *projection) warning(reason, message string) runtime.Event {
	return runtime.Event{Pod: runtime.RefOf(p.pod), Type: v1.EventTypeWarning, Reason: reason, Message: message}
}

func (c *Certificates) requestAll(ctx context.Context, due []*projection) {
	var g errgroup.Group
	g.SetLimit(maxRequests)
	for _, p := range due {
		g.Go(func() error {
			c.request(ctx, p)
			return nil
		})
	}
	_ = g.Wait()
}

// request makes a request for the projection, or repeats one that may not have arrived.
func (c *Certificates) request(ctx context.Context, p *projection) {
	limited, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	c.mu.Lock()
	if at, ok := p.requestAt(); !ok || at.After(time.Now()) || c.projections[p.key] != p {
		c.mu.Unlock() // it was answered, or the pod has ended, while it waited for its turn
		return
	}
	if p.pending != nil && p.pending.sent { // it has never appeared
		c.drop(p)
	}
	pend := p.pending
	c.mu.Unlock()
	if pend == nil {
		var err error
		if pend, err = c.prepare(limited, p); err != nil {
			c.failed(ctx, p, nil, err)
			return
		}
		c.mu.Lock()
		if c.projections[p.key] != p { // the pod has ended
			c.mu.Unlock()
			return
		}
		// Before it is sent: the watch may deliver it before the call returns.
		p.pending = pend
		c.requests[pend.name()] = p
		c.mu.Unlock()
	}
	if err := c.server.create(limited, pend.object, pend.key); err != nil {
		c.failed(ctx, p, pend, fmt.Errorf("while creating on API: %w", err))
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	pend.sent, pend.lostAt = true, time.Now().Add(lostAfter)
	c.changed.Notify()
}

// prepare makes a key and a request.
func (c *Certificates) prepare(ctx context.Context, p *projection) (*pending, error) {
	node := c.opts.NodeUID()
	if node == "" {
		return nil, errNoNode
	}
	pod, spec := p.pod, p.spec
	account, err := c.server.client.CoreV1().ServiceAccounts(pod.Namespace).Get(ctx, pod.Spec.ServiceAccountName,
		metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("while fetching service account: %w", err)
	}
	c.keys.Lock() // one at a time: keys of RSA take a core for a second
	keyPEM, csr, err := newKey(spec.KeyType)
	c.keys.Unlock()
	if err != nil {
		return nil, err
	}
	return &pending{key: keyPEM, object: &certificatesv1.PodCertificateRequest{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: "req-" + strconv.FormatUint(rand.Uint64(), 36),
			// The request goes with the pod.
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}},
		},
		Spec: certificatesv1.PodCertificateRequestSpec{
			SignerName: spec.SignerName, PodName: pod.Name, PodUID: pod.UID,
			ServiceAccountName: account.Name, ServiceAccountUID: account.UID,
			NodeName: types.NodeName(c.nodeName), NodeUID: node,
			MaxExpirationSeconds: spec.MaxExpirationSeconds, StubPKCS10Request: csr,
			UnverifiedUserAnnotations: spec.UserAnnotations,
		},
	}}, nil
}

// failed notes that a try has failed; pend is the request that was sent, nil if there is none. It
// is repeated as it is, because it may have arrived, unless the API server has refused it.
func (c *Certificates) failed(ctx context.Context, p *projection, pend *pending, err error) {
	if ctx.Err() != nil {
		return // the agent ends
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if p.pending != pend || pend != nil && pend.seen {
		return // it has arrived, or the pod has ended
	}
	if outage.Answered(err) {
		c.drop(p)
	}
	c.retryLater(p, err)
}

// retryLater has the request repeated after a back-off. mu is held.
func (c *Certificates) retryLater(p *projection, err error) {
	p.err = err
	p.failures++
	delay := flow.Backoff{Min: 100 * time.Millisecond, Max: time.Minute}.After(p.failures)
	p.retryAt = time.Now().Add(delay + rand.N(delay/2))
	if p.failures == 1 {
		c.opts.Logger.Error(err, "Certificate of a pod cannot be requested; it is tried again",
			"pod", runtime.RefOf(p.pod), "volume", p.volume)
	}
	c.changed.Notify()
}
