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

// Mark is a point in the order of reads that a [Cache] keeps, or of lists of an
// [ImageService]. Marks of different caches and services cannot be compared.
type Mark uint64

// CacheOptions are the settings of a [Cache]. The zero value is valid.
type CacheOptions struct {
	// InspectTimeout limits one inspection of one pod. Default: 2 minutes, kubelet's
	// runtimeRequestTimeout.
	InspectTimeout time.Duration
}

// Cache holds the last known status of each pod. It reads through: a caller that needs a
// newer status has that one pod inspected at once, and does not wait for a relist. At most
// one inspection of a pod is under way. Callers that can use its result share it.
//
// Pods that the runtime does not have are not kept: each call about one costs a read, and
// no memory. There are two exceptions. Once Seen has been called, the statuses that reads
// have returned are kept for the next call of Seen. And the first call about a pod that
// the last list did not have costs no read; see [Cache.First].
//
// A Cache starts no goroutines. It is safe for concurrent use.
type Cache struct {
	inspector Inspector
	timeout   time.Duration

	mu sync.Mutex
	// last is the newest mark that was drawn.
	last Mark
	pods map[types.UID]*entry
	// watched means that Seen was called, so statuses are kept for its caller.
	watched bool
	// listed is the mark of the last list, 0 before the first. mayExist are the pods that
	// may exist: those in the list, with its mark, and those that a caller has asked for
	// since, with a mark no older than the last call.
	listed   Mark
	mayExist map[types.UID]Mark
	// watchers are the channels of WatchStatus. Each has room for one value.
	watchers map[types.UID][]chan struct{}
}

// entry is what is known of one pod. It is guarded by Cache.mu.
type entry struct {
	// status is the newest status. It is nil before the first successful read, after
	// ForgetUntil, and when the runtime does not have the pod. Its mark never decreases.
	status *PodStatus
	// seen are the newest status that a read has returned, and before it the last one that
	// showed something else. Each is nil until there is one, and again after Seen has
	// returned it. They are kept whether or not status is one of them, since callers have
	// received them.
	seen [2]*PodStatus
	// inspection is the one under way, nil if there is none. The entry stays in the cache
	// until it ends.
	inspection *inspection
	// forgotten is the greatest mark of a ForgetUntil since the inspection began: the
	// results of reads that began no later are not kept.
	forgotten Mark
}

// inspection is one inspection of a pod. mark is drawn before it begins. status and err
// are set before done is closed, and not changed afterwards.
type inspection struct {
	mark   Mark
	done   chan struct{}
	status *PodStatus
	err    error
	// abandoned means that the inspection failed because its caller's context ended. The
	// pod may have no error.
	abandoned bool
}

// NewCache returns an empty cache over the inspector.
func NewCache(inspector Inspector, opts CacheOptions) *Cache {
	if opts.InspectTimeout <= 0 {
		opts.InspectTimeout = 2 * time.Minute
	}
	return &Cache{inspector: inspector, timeout: opts.InspectTimeout, pods: map[types.UID]*entry{}}
}

// Now draws a mark. A status with a greater mark was read after the call.
func (c *Cache) Now() Mark {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.draw()
}

func (c *Cache) draw() Mark {
	c.last++
	return c.last
}

// Listed records a list of all pods of the runtime that was read after the mark. A pod
// that is not in the list did not exist then.
func (c *Cache) Listed(pods []*Pod, after Mark) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if after <= c.listed {
		return // a newer list is known
	}
	c.listed = after
	if c.mayExist == nil {
		c.mayExist = make(map[types.UID]Mark, len(pods))
	}
	for _, pod := range pods {
		if c.mayExist[pod.UID] < after {
			c.mayExist[pod.UID] = after
		}
	}
	if len(c.mayExist) == len(pods) {
		return // the usual case: only pods in the list may exist
	}
	for uid, mark := range c.mayExist {
		if mark < after {
			delete(c.mayExist, uid)
		}
	}
}

// First returns the mark for the first read of a caller that begins to work on the pod.
// It is a new mark, as from Now, because a status in the cache may be older than a change
// by another user. If the last list did not have the pod and no caller has read it since,
// it is an earlier mark: with that, [Cache.Newer] answers from the list, without a read.
func (c *Cache) First(uid types.UID) Mark {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.absent(uid) {
		return c.listed - 1
	}
	return c.draw()
}

// absent reports whether the pod does not exist according to the last list: the list did
// not have it, and no caller has read it since.
func (c *Cache) absent(uid types.UID) bool {
	_, mayExist := c.mayExist[uid]
	return c.listed > 0 && !mayExist && c.pods[uid] == nil
}

// noteRead notes that a caller has read the pod. The list no longer counts for it, because
// the caller may be about to create it.
func (c *Cache) noteRead(uid types.UID) {
	if c.listed > 0 {
		c.mayExist[uid] = c.last
	}
}

// Get returns the last known status of the pod, or false. It does not call the runtime.
func (c *Cache) Get(uid types.UID) (*PodStatus, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.pods[uid]; e != nil && e.status != nil {
		return e.status, true
	}
	return nil, false
}

// Seen returns what was read of the pod since the last call, the older first: the newest
// status, and before it the last one that showed other containers, sandboxes or states.
// An empty UID means all pods. The statuses may have been replaced or forgotten since. So
// a caller that compares them with the current state finds each pod of which some caller
// has a status that is no longer true.
//
// Each status is returned once, so Seen is meant for one caller.
func (c *Cache) Seen(uid types.UID) []*PodStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watched = true
	if uid != "" {
		return c.takeSeen(nil, uid, c.pods[uid])
	}
	var all []*PodStatus
	for uid, e := range c.pods {
		all = c.takeSeen(all, uid, e)
	}
	return all
}

// takeSeen appends what was seen of a pod to the list, and drops it.
func (c *Cache) takeSeen(to []*PodStatus, uid types.UID, e *entry) []*PodStatus {
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

// Newer returns a status of the pod that was read after the mark: from memory if there is
// one, otherwise from the runtime. It inspects the pod in the caller's goroutine, or shares
// the inspection of another caller. If the runtime does not have the pod, the status has
// no sandboxes and no containers.
//
// Errors are wrapped with the pod. They are the cause of the context's end, or the error of
// the inspector, which is a [*PanicError] if it panicked. An error does not replace the last known status.
func (c *Cache) Newer(ctx context.Context, ref PodRef, after Mark) (*PodStatus, error) {
	for {
		c.mu.Lock()
		e := c.pods[ref.UID]
		if e == nil {
			if c.absent(ref.UID) && after == c.listed-1 { // the mark of First
				status := &PodStatus{PodRef: ref, Mark: c.listed}
				c.noteRead(ref.UID)
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
		i := e.inspection
		if i == nil {
			i = &inspection{mark: c.draw(), done: make(chan struct{})}
			e.inspection = i
			c.mu.Unlock()
			c.inspect(ctx, ref, e, i)
			return i.status, i.err
		}
		c.mu.Unlock()

		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("pod %s: waiting for its status: %w", ref, context.Cause(ctx))
		case <-i.done:
		}
		// An inspection that began too early or was abandoned is of no use: begin again.
		if i.mark > after && !i.abandoned {
			return i.status, i.err
		}
	}
}

// inspect makes an inspection and publishes its result.
func (c *Cache) inspect(ctx context.Context, ref PodRef, e *entry, i *inspection) {
	defer func() {
		if i.err == nil && i.status == nil { // the inspector has ended its goroutine
			i.err, i.abandoned = fmt.Errorf("pod %s: the inspection has not returned", ref), true
		}
		c.mu.Lock()
		e.inspection = nil
		if i.err == nil {
			e.saw(i.status)
			if i.mark > e.forgotten {
				was := e.status
				e.status = i.status
				if len(i.status.Sandboxes) == 0 && len(i.status.Containers) == 0 {
					e.status = nil
				}
				c.wakeWatchers(ref.UID, was, e.status)
			}
		}
		c.dropIfIdle(ref.UID, e)
		c.mu.Unlock()
		close(i.done)
	}()

	ictx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	var status *PodStatus
	err := Recover(func() (err error) {
		status, err = c.inspector.InspectPod(ictx, ref)
		return err
	})
	switch {
	case err == nil && status == nil:
		i.err = fmt.Errorf("pod %s: reading its status from the runtime: the inspector returned neither a status "+
			"nor an error", ref)
	case err == nil:
		marked := *status
		marked.UID, marked.Mark = ref.UID, i.mark
		i.status = &marked
	case ctx.Err() != nil:
		i.err, i.abandoned = fmt.Errorf("pod %s: reading its status from the runtime: %w", ref,
			errors.Join(context.Cause(ctx), err)), true
	default:
		i.err = fmt.Errorf("pod %s: reading its status from the runtime: %w", ref, err)
	}
}

// ForgetUntil drops what reads that began no later than the mark have returned about the
// pod, also when they are still under way. It reports whether nothing newer is known or
// being read. Callers use it when a list no longer has the pod.
func (c *Cache) ForgetUntil(uid types.UID, mark Mark) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.pods[uid]
	if e == nil {
		return true
	}
	e.forgotten = max(e.forgotten, mark)
	if e.status != nil && e.status.Mark <= mark {
		c.wakeWatchers(uid, e.status, nil)
		e.status = nil
	}
	all := e.status == nil && (e.inspection == nil || e.inspection.mark <= mark)
	c.dropIfIdle(uid, e)
	return all
}

// dropIfIdle removes an entry that has nothing to keep.
func (c *Cache) dropIfIdle(uid types.UID, e *entry) {
	if e.status != nil || e.inspection != nil || c.pods[uid] != e {
		return
	}
	if !c.watched || e.seen == [2]*PodStatus{} {
		delete(c.pods, uid)
		c.noteRead(uid)
	}
}

// saw records what a read has returned.
func (e *entry) saw(status *PodStatus) {
	if was := e.seen[0]; was != nil && !showSame(was, status) {
		e.seen[1] = was
	}
	e.seen[0] = status
}

// showSame reports whether two statuses have the same containers and sandboxes with the
// same states in the same order.
func showSame(a, b *PodStatus) bool {
	return slices.EqualFunc(a.Sandboxes, b.Sandboxes,
		func(a, b SandboxStatus) bool { return a.ID == b.ID && a.State == b.State }) &&
		slices.EqualFunc(a.Containers, b.Containers,
			func(a, b ContainerStatus) bool { return a.ID == b.ID && a.State == b.State })
}
