// Package listwatch runs client-go's reflector with what it lacks: everything that it starts
// is joined, a server that does not answer is given up, and it does not log each attempt.
package listwatch

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/kubeletkit/kubeletkit/cluster/internal/outage"
	"github.com/kubeletkit/kubeletkit/internal/flow"
)

const (
	// answerTimeout is the deadline of a list, and of the response to a watch request. It is
	// the time after which an API server aborts a list (kube-apiserver --request-timeout).
	answerTimeout = time.Minute
	// silence is how much longer than the server promised a watch may last.
	silence = 30 * time.Second
	// spacing is the time between two requests for initial events that are answered: if such a watch
	// ends early, the reflector repeats the request without a back-off.
	spacing = time.Second
	// defaultMaxBackoff is the default of Resource.MaxBackoff.
	defaultMaxBackoff = 30 * time.Second
	// steady is how long a watch lasts that counts as a success.
	steady = 10 * time.Second
)

// Resource describes the objects that are listed and watched.
type Resource struct {
	// Name is for log messages.
	Name string
	// Client is the client of the API.
	Client kubernetes.Interface
	// Type is an object of the type.
	Type kruntime.Object
	API
	// FieldSelector restricts both. If empty, there is no restriction.
	FieldSelector string
	// Failed receives the error of each request that fails; first is true if the one before has
	// succeeded. If nil, errors are discarded.
	Failed func(err error, first bool)
	// MaxBackoff is the longest wait between two attempts, without a jitter of up to one
	// half. Default 30 s.
	MaxBackoff time.Duration
	// Probe means that MaxBackoff also holds if the client has the signal of package outage. Other
	// resources then wait for the signal, 30 s at most.
	Probe bool
}

// retry waits between attempts that fail. It is for one goroutine.
type retry struct {
	backoff  flow.Backoff
	failures int
	// began is the time of the latest attempt, and ended is closed by the signal after it.
	began  time.Time
	ended  <-chan struct{}
	client kubernetes.Interface
}

// begin is called before each attempt.
func (r *retry) begin() { r.began, r.ended = time.Now(), outage.Ended(r.client) }

// wait is called after an attempt. One that was long has succeeded.
func (r *retry) wait(ctx context.Context) error {
	r.failures++
	if time.Since(r.began) > steady {
		r.failures = 1
	}
	delay := r.backoff.After(r.failures)
	return outage.Wait(ctx, delay+rand.N(delay/2), r.ended)
}

// shortWatches waits between watches that end soon. The reflector opens one again at once if it had
// an event. It is for one goroutine.
type shortWatches struct {
	backoff flow.Backoff
	opened  time.Time // the latest watch
	inRow   int       // watches in a row that have ended soon
}

// wait is called before a watch is opened. The first watch that ends soon is free: a server that is
// restarted ends all watches.
func (s *shortWatches) wait(ctx context.Context) error {
	if s.opened.IsZero() || time.Since(s.opened) > steady {
		s.inRow = 0
		return nil
	}
	s.inRow++
	delay := s.backoff.After(s.inRow - 1)
	if delay > 0 {
		delay += rand.N(delay / 2)
	}
	return outage.Wait(ctx, delay, nil)
}

// Run keeps the store up to date until ctx ends. Then it waits for all that it has started.
func Run(ctx context.Context, r Resource, store cache.ReflectorStore) {
	var lists joiner
	defer lists.wait()
	silent := logr.Discard() // Failed has the errors
	ctx = klog.NewContext(ctx, silent)
	var failing atomic.Bool
	result := func(err error) {
		switch {
		case err == nil:
			failing.Store(false)
		// That the server has forgotten a version is no failure: there is a new list.
		case ctx.Err() == nil && r.Failed != nil && !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err):
			r.Failed(err, !failing.Swap(true))
		}
	}
	retries := &retry{backoff: flow.Backoff{Min: 500 * time.Millisecond, Max: r.MaxBackoff}, client: r.Client}
	if r.MaxBackoff <= 0 || !r.Probe && outage.Ended(r.Client) != nil {
		retries.backoff.Max = defaultMaxBackoff
	}
	watches := &shortWatches{backoff: retries.backoff}
	initial := &shortWatches{backoff: retries.backoff} // watches with initial events
	lw := &cache.ListWatch{
		ListWithContextFunc: func(_ context.Context, opts metav1.ListOptions) (kruntime.Object, error) {
			// The reflector lists in a goroutine that it does not wait for, without its context.
			if !lists.begin() {
				return nil, ctx.Err()
			}
			defer lists.group.Done()
			limited, cancel := context.WithTimeout(ctx, answerTimeout)
			defer cancel()
			opts.FieldSelector = r.FieldSelector
			list, err := r.List(limited, opts)
			if err == nil {
				err = validate(list)
			}
			result(err)
			return list, err
		},
		WatchFuncWithContext: func(_ context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			opts.FieldSelector = r.FieldSelector
			if opts.SendInitialEvents != nil {
				if err := outage.Wait(ctx, spacing-time.Since(initial.opened), nil); err != nil {
					return nil, err
				}
				if err := initial.wait(ctx); err != nil {
					return nil, err
				}
				initial.opened = time.Now()
			} else if err := watches.wait(ctx); err != nil {
				return nil, err
			}
			w, err := openWatch(ctx, opts, r.Watch)
			// The reflector would go on with this watch after a sleep that no signal ends.
			for opts.SendInitialEvents == nil && (utilnet.IsConnectionRefused(err) ||
				apierrors.IsTooManyRequests(err)) {
				result(err)
				if err := retries.wait(ctx); err != nil {
					return nil, err
				}
				retries.begin()
				w, err = openWatch(ctx, opts, r.Watch)
			}
			if err == nil || opts.SendInitialEvents == nil {
				result(err)
			} else {
				initial.opened = time.Time{} // a back-off follows
				// The list that follows has the result. Hide the type of the error: the reflector would
				// repeat the request after a sleep that ignores the end of ctx. It lists instead, with a
				// back-off that does not.
				err = errors.New(err.Error())
			}
			if err == nil {
				watches.opened = time.Now()
			}
			return w, err
		},
	}
	reflector := cache.NewReflectorWithOptions(cache.ToListWatcherWithWatchListSemantics(lw, r.Client), r.Type, store,
		cache.ReflectorOptions{
			Name: r.Name, Logger: &silent,
			// For errors within a watch; the others never get to its back-off.
			Backoff: &wait.Backoff{Duration: retries.backoff.Min, Factor: 2, Jitter: 0.5, Steps: 20,
				Cap: retries.backoff.Max},
		})
	// Reflector.RunWithContext passes errors to handlers that are global, and log.
	for {
		retries.begin()
		_ = reflector.ListAndWatchWithContext(ctx)
		if retries.wait(ctx) != nil {
			return
		}
	}
}

// errNoList is the error of an answer that is no list.
var errNoList = errors.New("the answer is no list: it has no resource version")

// validate returns an error if the list has no resource version. A client decodes an answer of another
// kind, such as that of a broken proxy, as an empty list without an error; all objects would seem to be gone.
func validate(list kruntime.Object) error {
	if l, err := meta.ListAccessor(list); err != nil || l.GetResourceVersion() == "" {
		return errNoList
	}
	return nil
}

// openWatch opens a watch. It ends when ctx does, and if it lasts longer than the requested time,
// because then the server does not answer any more.
func openWatch(ctx context.Context, opts metav1.ListOptions,
	open func(context.Context, metav1.ListOptions) (watch.Interface, error)) (watch.Interface, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	deadline := time.AfterFunc(answerTimeout, func() { cancel(fmt.Errorf("no response within %v", answerTimeout)) })
	w, err := open(ctx, opts)
	opened := deadline.Stop()
	if err == nil && !opened {
		w.Stop()
		err = context.Cause(ctx)
	}
	if err != nil {
		if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
			err = fmt.Errorf("%w: %w", err, cause)
		}
		cancel(nil)
		return nil, err
	}
	bounded := &boundedWatch{Interface: w, cancel: func() { cancel(nil) }}
	if opts.TimeoutSeconds != nil {
		limit := time.Duration(*opts.TimeoutSeconds)*time.Second + silence
		bounded.timer = time.AfterFunc(limit,
			func() { cancel(fmt.Errorf("the server has not ended the watch after %v", limit)) })
	}
	return bounded, nil
}

// boundedWatch is a watch with a context of its own.
type boundedWatch struct {
	watch.Interface
	cancel func()
	timer  *time.Timer // nil if the watch has no time limit
}

// Stop implements [watch.Interface].
func (w *boundedWatch) Stop() {
	if w.timer != nil {
		w.timer.Stop()
	}
	w.cancel()
	w.Interface.Stop()
}

// joiner waits for calls in goroutines that it has not started.
type joiner struct {
	mu    sync.Mutex
	ended bool
	group sync.WaitGroup
}

// begin counts a call that has begun. It returns false after wait was called.
func (j *joiner) begin() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.ended {
		j.group.Add(1)
	}
	return !j.ended
}

func (j *joiner) wait() {
	j.mu.Lock()
	j.ended = true
	j.mu.Unlock()
	j.group.Wait()
}
