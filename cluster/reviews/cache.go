package reviews

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/lru"
)

const (
	// maxAnswers bounds the answers of a cache, of about 1 KiB each.
	maxAnswers = 4096
	// callTimeout bounds a question with its repetitions (kubelet: that of its other calls).
	callTimeout = 10 * time.Second
)

// backoff is that of kubelet (DefaultAuthWebhookRetryBackoff in k8s.io/apiserver).
func backoff() wait.Backoff {
	return wait.Backoff{Duration: 500 * time.Millisecond, Factor: 1.5, Jitter: 0.2, Steps: 5}
}

// question is the hash of a question, with a secret key.
type question [sha256.Size]byte

// cache keeps answers of the API server.
type cache[V any] struct {
	secret []byte
	kept   *lru.Cache // question -> an answer

	mu   sync.Mutex
	asks map[question]*ask[V]
}

type answer[V any] struct {
	value   V
	expires time.Time
}

// ask is a question to the API server that is under way.
type ask[V any] struct {
	cancel  context.CancelFunc // called when no caller waits any more
	waiting int                // guarded by cache.mu
	done    chan struct{}      // closed when value and err are valid
	value   V
	err     error
}

func newCache[V any]() *cache[V] {
	secret := make([]byte, sha256.Size)
	_, _ = rand.Read(secret) // never fails
	return &cache[V]{secret: secret, kept: lru.New(maxAnswers), asks: map[question]*ask[V]{}}
}

func (c *cache[V]) question(data []byte) (q question) {
	h := hmac.New(sha256.New, c.secret)
	h.Write(data)
	h.Sum(q[:0])
	return q
}

// get returns the answer to a question. If it is not kept, call asks the API server: it returns
// the answer and for how long it is kept, and returns soon after its context ends. Callers of the same question share
// one call. The last caller that gives up returns when the call has.
func (c *cache[V]) get(ctx context.Context, q question, call func(context.Context) (V, time.Duration,
	error)) (V, error) {
	c.mu.Lock()
	if kept, ok := c.kept.Get(q); ok {
		if a := kept.(answer[V]); time.Now().Before(a.expires) {
			c.mu.Unlock()
			return a.value, nil
		}
		c.kept.Remove(q)
	}
	a := c.asks[q]
	if a == nil {
		// The values of the context, but not its end: others may come to wait for the answer.
		shared, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
		a = &ask[V]{cancel: cancel, done: make(chan struct{})}
		c.asks[q] = a
		go c.run(shared, q, a, call)
	}
	a.waiting++
	c.mu.Unlock()
	select {
	case <-a.done:
		return a.value, a.err
	case <-ctx.Done():
	}
	c.mu.Lock()
	a.waiting--
	last := a.waiting == 0
	if last && c.asks[q] == a {
		delete(c.asks, q) // the next one asks anew
	}
	c.mu.Unlock()
	if last { // nobody else waits for the goroutine
		a.cancel()
		<-a.done
	}
	var none V
	return none, ctx.Err()
}

// run asks the API server.
func (c *cache[V]) run(ctx context.Context, q question, a *ask[V],
	call func(context.Context) (V, time.Duration, error)) {
	defer a.cancel()
	var keep time.Duration
	err := wait.ExponentialBackoffWithContext(ctx, backoff(), func(ctx context.Context) (bool, error) {
		a.value, keep, a.err = call(ctx)
		return a.err == nil || !mayPass(a.err), nil
	})
	if a.err == nil {
		a.err = err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asks[q] == a {
		delete(c.asks, q)
	}
	if a.err == nil && keep > 0 {
		c.kept.Add(q, answer[V]{a.value, time.Now().Add(keep)})
	}
	close(a.done)
}

// mayPass reports whether the same request may succeed later, as kubelet judges
// (DefaultShouldRetry in k8s.io/apiserver).
func mayPass(err error) bool {
	_, delay := apierrors.SuggestsClientDelay(err)
	return delay || utilnet.IsConnectionReset(err) || utilnet.IsHTTP2ConnectionLost(err) ||
		apierrors.IsInternalError(err) || apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err)
}
