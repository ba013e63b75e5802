package podcertificates

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// errDeleted is the error of a request that was deleted without an answer.
var errDeleted = errors.New("PodCertificateRequest appears to have been deleted")

// store receives the requests of the node. It implements cache.ReflectorStore, whose methods
// are called one at a time, Replace first. It keeps nothing.
type store Certificates

// Add implements cache.ReflectorStore.
func (s *store) Add(object any) error {
	if r, ok := reduce(object); ok {
		(*Certificates)(s).observe(r)
	}
	return nil
}

// Update implements cache.ReflectorStore.
func (s *store) Update(object any) error { return s.Add(object) }

// Delete implements cache.ReflectorStore.
func (s *store) Delete(object any) error {
	c := (*Certificates)(s)
	r, ok := reduce(object)
	if !ok {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.requests[r.id]; p != nil {
		c.deleted(p)
	}
	return nil
}

// Replace implements cache.ReflectorStore.
func (s *store) Replace(list []any, _ string) error {
	c := (*Certificates)(s)
	there := make(map[types.NamespacedName]bool, len(list))
	for _, object := range list {
		if r, ok := reduce(object); ok {
			there[r.id] = true
			c.observe(r)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.readErr = nil
	for id, p := range c.requests {
		if p.pending.seen && !there[id] { // one that was not seen may be newer than the list
			c.deleted(p)
		}
	}
	select {
	case <-c.read:
	default:
		close(c.read)
	}
	return nil
}

// Resync implements cache.ReflectorStore.
func (s *store) Resync() error { return nil }

// deleted forgets the request under way, and has another one made. mu is held.
func (c *Certificates) deleted(p *projection) {
	err := fmt.Errorf("%w: %s", errDeleted, p.pending.name())
	c.drop(p)
	c.retryLater(p, err)
}

// observe applies the state of a request.
func (c *Certificates) observe(r request) {
	c.mu.Lock()
	c.readErr = nil
	p := c.requests[r.id]
	if p == nil {
		c.mu.Unlock()
		return
	}
	p.pending.sent, p.pending.seen = true, true
	event, answered := c.answer(p, r)
	c.mu.Unlock()
	if !answered {
		return
	}
	c.changed.Notify()
	if event != nil {
		c.opts.Event.Emit(*event)
	}
	if c.opts.Changed != nil {
		c.opts.Changed(p.key.pod)
	}
}

// answer applies the answer of the signer, if there is one. mu is held.
func (c *Certificates) answer(p *projection, r request) (event *runtime.Event, answered bool) {
	for _, cond := range r.status.Conditions {
		if cond.Status != metav1.ConditionTrue {
			continue
		}
		switch cond.Type {
		case certificatesv1.PodCertificateRequestConditionTypeDenied:
			event = c.refuse(p, r, &cond, "denied", "was denied")
		case certificatesv1.PodCertificateRequestConditionTypeFailed:
			event = c.refuse(p, r, &cond, "failed", "failed")
		case certificatesv1.PodCertificateRequestConditionTypeIssued:
			if r.status.BeginRefreshAt == nil || r.status.NotAfter == nil {
				continue // the API server does not accept that
			}
			p.issued = newCertificate(p.pending.key, &r.status, time.Now())
		default:
			continue
		}
		c.drop(p)
		p.err, p.failures, p.retryAt = nil, 0, time.Time{}
		select {
		case <-p.settled:
		default:
			close(p.settled)
		}
		return event, true
	}
	return nil, false
}

// refuse notes that the signer has refused the request, with kubelet's words.
func (c *Certificates) refuse(p *projection, r request, cond *metav1.Condition, word, clause string) *runtime.Event {
	p.refused = fmt.Errorf("%w %s: reason=%q message=%q", ErrRefused, word, cond.Reason, cond.Message)
	event := p.warning(cond.Type, fmt.Sprintf("PodCertificateRequest %s %s, reason=%q, message=%q", r.id, clause,
		cond.Reason, cond.Message))
	return &event
}

// newCertificate returns a certificate that is issued now.
func newCertificate(key []byte, status *certificatesv1.PodCertificateRequestStatus, now time.Time) *certificate {
	begin, end := status.BeginRefreshAt.Time, status.NotAfter.Time
	jitter := min(maxJitter, end.Sub(begin)/2)
	if jitter > 0 {
		begin = begin.Add(rand.N(jitter))
	}
	if least := now.Add(minUse); begin.Before(least) {
		begin = least
	}
	return &certificate{key: key, chain: cleanChain(status.CertificateChain), refreshAt: begin,
		overdueAt: begin.Add(overdueAfter), expiredAt: end}
}
