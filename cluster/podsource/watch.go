package podsource

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

const (
	// listTimeout is the deadline of a list, and of the response to a watch request. It is
	// the time after which an API server aborts a list (kube-apiserver --request-timeout).
	listTimeout = time.Minute
	// spacing is the time between two requests for initial events: the reflector repeats one
	// that ends early without a back-off.
	spacing = time.Second
	// silence is how much longer than the server promised a watch may last.
	silence = 30 * time.Second
)

// backoff is the wait between attempts to list and watch: from 0.5 to 3 s, plus up to half of
// that. So a node has the pods again less than 5 s after its server is back.
func backoff() *wait.Backoff {
	return &wait.Backoff{Duration: 500 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 10, Cap: 3 * time.Second}
}

// watch keeps the store up to date until ctx ends.
func (s *Source) watch(ctx context.Context, to *store) {
	var lists joiner
	defer lists.wait()
	log := s.opts.Logger.WithName("reflector")
	ctx = klog.NewContext(ctx, log)

	var opened time.Time
	pods := s.client.CoreV1().Pods(metav1.NamespaceAll)
	selector := fields.OneTermEqualSelector("spec.nodeName", s.node).String()
	lw := &cache.ListWatch{
		ListWithContextFunc: func(_ context.Context, opts metav1.ListOptions) (kruntime.Object, error) {
			// The reflector lists in a goroutine that it does not wait for, without its context.
			if !lists.begin() {
				return nil, ctx.Err()
			}
			defer lists.group.Done()
			ctx, cancel := context.WithTimeout(ctx, listTimeout)
			defer cancel()
			opts.FieldSelector = selector
			return pods.List(ctx, opts)
		},
		WatchFuncWithContext: func(_ context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			opts.FieldSelector = selector
			if opts.SendInitialEvents != nil {
				if err := sleep(ctx, spacing-time.Since(opened)); err != nil {
					return nil, err
				}
				opened = time.Now()
			}
			w, err := openWatch(ctx, opts, pods.Watch)
			if err != nil && opts.SendInitialEvents != nil {
				// Hide the type of the error: the reflector would repeat the request after a sleep
				// that ignores the end of ctx. It lists instead, with a back-off that does not.
				err = errors.New(err.Error())
			}
			return w, err
		},
	}
	cache.NewReflectorWithOptions(cache.ToListWatcherWithWatchListSemantics(lw, s.client), &v1.Pod{}, to, cache.ReflectorOptions{
		Name: "pods of node " + s.node, Logger: &log, Backoff: backoff(),
	}).RunWithContext(ctx)
}

// sleep waits, and returns the cause of ctx if that ends before.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// openWatch opens a watch. It ends when ctx does, and if it lasts longer than the server was
// asked for, because then the server does not answer any more.
func openWatch(ctx context.Context, opts metav1.ListOptions, open func(context.Context, metav1.ListOptions) (watch.Interface, error)) (watch.Interface, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	deadline := time.AfterFunc(listTimeout, func() { cancel(fmt.Errorf("no response within %v", listTimeout)) })
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
		bounded.timer = time.AfterFunc(limit, func() { cancel(fmt.Errorf("the server has not ended the watch after %v", limit)) })
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
