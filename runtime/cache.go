package runtime

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Mark is a point in the order of reads and changes that a [Cache] keeps. Marks
// of different caches have nothing to do with each other.
type Mark uint64

// CacheOptions are the settings of a [Cache]; the zero value is good.
type CacheOptions struct {
	// InspectTimeout bounds one inspection of one pod. Default: 2 minutes, the
	// runtimeRequestTimeout of kubelet.
	InspectTimeout time.Duration
}

// Cache holds the last known status of each pod, and reads through: a caller
// that needs a newer one has that one pod inspected at once, and waits for no
// relist. At most one inspection of a pod is under way; callers who can use its
// result share it.
//
// A pod of which the runtime knows nothing is not kept: each question about it
// costs a read, and it costs no memory, except that a cache whose Seen is used
// remembers what was read of it until Seen has told. The first question about a pod that
// the last list did not show costs no read either, see First.
//
// A Cache starts no goroutine. It is safe for concurrent use.
type Cache struct {
	inspector Inspector
	timeout   time.Duration

	mu sync.Mutex
	// last is the newest mark that was drawn.
	last Mark
	pods map[types.UID]*entry
	// watched says that somebody calls Seen, and so lets go of what was seen.
	watched bool
	// listed is the mark of the last list, 0 before the first. listable are the pods
	// of which there may be something: those which it showed, with its mark, and those
	// which were asked about since, with one no older than the last question.
	listed   Mark
	listable map[types.UID]Mark
}

// entry is what the cache knows of one pod. It is guarded by Cache.mu.
type entry struct {
	// status is the newest that was read; nil before the first success, after a
	// Forget, and when the runtime knows nothing of the pod. Its mark never goes
	// down.
	status *PodStatus
	// seen are the newest read, and before it the last that showed something else;
	// each is nil before it happened, and when Seen has let go of it. Callers got
	// them, so they are remembered whether or not status is still one of them.
	seen [2]*PodStatus
	// flight is the inspection under way, if any.
	flight *flight
	// forgotten is the greatest mark of a Forget since flight began: the results of
	// reads that began no later are not kept. As long as there is a flight, the
	// entry stays in the cache.
	forgotten Mark
}

// flight is one inspection. mark is drawn before it starts; status and err are
// set before done is closed and not changed after.
type flight struct {
	mark   Mark
	done   chan struct{}
	status *PodStatus
	err    error
	// abandoned says that the inspection ended because the context of the caller who
	// led it did, which says nothing about the pod.
	abandoned bool
}

// NewCache returns an empty cache over the inspector.
func NewCache(inspector Inspector, opts CacheOptions) *Cache {
	if opts.InspectTimeout <= 0 {
		opts.InspectTimeout = 2 * time.Minute
	}
	return &Cache{inspector: inspector, timeout: opts.InspectTimeout, pods: map[types.UID]*entry{}}
}

// Now draws a mark: a status whose mark is greater has been read after now.
func (c *Cache) Now() Mark {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.draw()
}

func (c *Cache) draw() Mark {
	c.last++
	return c.last
}

// Listed takes in a list of all pods that the runtime holds, which was read after the
// mark. A pod that is not among them had nothing then.
func (c *Cache) Listed(pods []*Pod, after Mark) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if after <= c.listed {
		return // one that is newer is known
	}
	c.listed = after
	if c.listable == nil {
		c.listable = make(map[types.UID]Mark, len(pods))
	}
	for _, pod := range pods {
		if c.listable[pod.UID] < after {
			c.listable[pod.UID] = after
		}
	}
	if len(c.listable) == len(pods) {
		return // nothing but what was listed: the rule, and nothing to look for
	}
	for uid, mark := range c.listable {
		if mark < after {
			delete(c.listable, uid)
		}
	}
}

// First returns the mark for the first question of somebody who begins with the pod.
// That is Now, since what is known may be what another has left there; but an earlier one
// if the last list did not show the pod and nobody has asked about it since: with that
// mark, [Cache.Newer] answers from the list, without a read.
func (c *Cache) First(uid types.UID) Mark {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.absent(uid) {
		return c.listed - 1
	}
	return c.draw()
}

// absent reports whether the last list says that there is nothing of the pod, and it
// is the last word.
func (c *Cache) absent(uid types.UID) bool {
	_, listable := c.listable[uid]
	return c.listed > 0 && !listable && c.pods[uid] == nil
}

// asked notes a question about the pod. From now on the list says nothing about it:
// who asks may be about to change it.
func (c *Cache) asked(uid types.UID) {
	if c.listed > 0 {
		c.listable[uid] = c.last
	}
}

// Get returns the last known status without asking the runtime, or false.
func (c *Cache) Get(uid types.UID) (*PodStatus, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.pods[uid]; e != nil && e.status != nil {
		return e.status, true
	}
	return nil, false
}

// Seen returns what was read of the pod since it was last asked, the older first:
// the newest status, and before it the last one that showed other containers,
// sandboxes or states. An empty UID asks about all pods. So whoever compares the
// statuses with what is true later learns of each pod of which some caller got a
// status that is not true any more, also if the cache has replaced or forgotten it
// since.
//
// It lets go of what it returns: it is meant for one caller.
func (c *Cache) Seen(uid types.UID) []*PodStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watched = true
	if uid != "" {
		return c.tell(nil, uid, c.pods[uid])
	}
	var all []*PodStatus
	for uid, e := range c.pods {
		all = c.tell(all, uid, e)
	}
	return all
}

// tell appends what was seen of a pod, and lets go of it.
func (c *Cache) tell(to []*PodStatus, uid types.UID, e *entry) []*PodStatus {
	if e == nil {
		return to
	}
	if e.seen[1] != nil {
		to = append(to, e.seen[1])
	}
	if e.seen[0] != nil {
		to = append(to, e.seen[0])
	}
	e.seen = [2]*PodStatus{}
	c.dropIfIdle(uid, e)
	return to
}

// Newer returns a status of the pod that was read after the mark, from memory if
// there is one, else by asking the runtime, in the caller's goroutine or by
// sharing the inspection of another. A pod that the runtime does not know has a
// status without sandboxes and containers. All errors are wrapped with the pod:
// the cause of the context's end, or the inspector's error; an error never
// replaces the last known status.
func (c *Cache) Newer(ctx context.Context, ref PodRef, after Mark) (*PodStatus, error) {
	for {
		c.mu.Lock()
		e := c.pods[ref.UID]
		if e == nil {
			if c.absent(ref.UID) && after == c.listed-1 { // the mark of First
				status := &PodStatus{PodRef: ref, Mark: c.listed}
				c.asked(ref.UID)
				c.mu.Unlock()
				return status, nil
			}
			e = &entry{}
			c.pods[ref.UID] = e
		}
		if e.status != nil && e.status.Mark > after {
			status := e.status
			c.mu.Unlock()
			return status, nil
		}
		f := e.flight
		if f == nil {
			f = &flight{mark: c.draw(), done: make(chan struct{})}
			e.flight = f
			c.mu.Unlock()
			c.lead(ctx, ref, e, f)
			return f.status, f.err
		}
		c.mu.Unlock()

		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("pod %s: waiting for its status: %w", ref, context.Cause(ctx))
		case <-f.done:
		}
		// A flight that began too early, or that its leader gave up, does not answer
		// the question: look again, and lead if nobody does.
		if f.mark > after && !f.abandoned {
			return f.status, f.err
		}
	}
}

// lead runs the inspection of a flight and publishes the outcome.
func (c *Cache) lead(ctx context.Context, ref PodRef, e *entry, f *flight) {
	finished := false
	defer func() {
		if !finished { // the inspector panicked: do not leave the others waiting
			f.err, f.abandoned = fmt.Errorf("pod %s: inspection panicked", ref), true
		}
		c.mu.Lock()
		e.flight = nil
		if f.err == nil {
			e.saw(f.status)
			if f.mark > e.forgotten {
				e.status = f.status
				if len(f.status.Sandboxes) == 0 && len(f.status.Containers) == 0 {
					e.status = nil
				}
			}
		}
		c.dropIfIdle(ref.UID, e)
		c.mu.Unlock()
		close(f.done)
	}()

	ictx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	status, err := c.inspector.InspectPod(ictx, ref)
	switch {
	case err == nil && status == nil:
		f.err = fmt.Errorf("pod %s: reading its status from the runtime: the inspector returned neither a status nor an error", ref)
	case err == nil:
		marked := *status
		marked.UID, marked.Mark = ref.UID, f.mark
		f.status = &marked
	case ctx.Err() != nil:
		f.err, f.abandoned = fmt.Errorf("pod %s: reading its status from the runtime: %w", ref, errors.Join(context.Cause(ctx), err)), true
	default:
		f.err = fmt.Errorf("pod %s: reading its status from the runtime: %w", ref, err)
	}
	finished = true
}

// ForgetUntil drops what is known of the pod from reads that began no later than
// the mark was drawn, also when they are still under way. It reports whether
// that is all there was: false means that a newer status is known, or being
// read. It serves a caller who has seen that the pod is gone, but not when others
// have looked.
func (c *Cache) ForgetUntil(uid types.UID, mark Mark) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.pods[uid]
	if e == nil {
		return true
	}
	e.forgotten = max(e.forgotten, mark)
	if e.status != nil && e.status.Mark <= mark {
		e.status = nil
	}
	all := e.status == nil && (e.flight == nil || e.flight.mark <= mark)
	c.dropIfIdle(uid, e)
	return all
}

// dropIfIdle removes an entry that holds nothing.
func (c *Cache) dropIfIdle(uid types.UID, e *entry) {
	if e.status != nil || e.flight != nil || c.pods[uid] != e {
		return
	}
	if !c.watched || e.seen == [2]*PodStatus{} {
		delete(c.pods, uid)
		c.asked(uid)
	}
}

// saw remembers what a read showed.
func (e *entry) saw(status *PodStatus) {
	if was := e.seen[0]; was != nil && !showSame(was, status) {
		e.seen[1] = was
	}
	e.seen[0] = status
}

// showSame reports whether two statuses have the same containers and sandboxes in
// the same states. Another order counts as a difference.
func showSame(a, b *PodStatus) bool {
	return slices.EqualFunc(a.Sandboxes, b.Sandboxes, func(a, b SandboxStatus) bool { return a.ID == b.ID && a.State == b.State }) &&
		slices.EqualFunc(a.Containers, b.Containers, func(a, b ContainerStatus) bool { return a.ID == b.ID && a.State == b.State })
}
