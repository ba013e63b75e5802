package podworkers

import (
	"math"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/backoff"
	"github.com/kubeletkit/kubeletkit/runtime"
)

const (
	forever = time.Duration(math.MaxInt64)
	// jitterFactor is how much a period may be prolonged at random, as part of it;
	// kubelet has the same for both its periods.
	jitterFactor = 0.5
	// firstPause after too many syncs in a row that changed something; it doubles.
	firstPause = 100 * time.Millisecond
	// freeChanges is how many syncs in a row may change something before there is a
	// pause. A sync does all that can be done at once, so that two or three in a row
	// are normal, one for each thing that had to be awaited.
	freeChanges = 5
)

// policy is when to call again.
type policy struct {
	resyncInterval time.Duration // forever: no periodic resync
	base, limit    time.Duration // of the error back-off
	freeChanges    int
}

// resync is the time until a pod is looked at though nothing happened. It ends with
// a 60th of the interval, a second as a rule, so that one awakening of an idle agent,
// which costs as much as a look, serves several pods.
func (p policy) resync(now time.Time, jitter float64) time.Duration {
	if p.resyncInterval == forever {
		return forever
	}
	wait := jittered(p.resyncInterval, jitter)
	if grid := p.resyncInterval / 60; grid > 0 {
		over := time.Duration(now.Add(wait).UnixNano()) % grid
		wait += (grid - over) % grid
	}
	return wait
}

// backoff is the time until the next try after that many failures in a row.
func (p policy) backoff(failures int, jitter float64) time.Duration {
	return jittered(backoff.Exponential{Min: p.base, Max: p.limit}.After(failures), jitter)
}

// pause is the time until the next sync after that many changes in a row.
func (p policy) pause(changes int) time.Duration {
	return backoff.Exponential{Min: min(firstPause, p.limit), Max: p.limit}.After(changes - p.freeChanges)
}

func jittered(d time.Duration, jitter float64) time.Duration {
	return d + time.Duration(float64(d)*jitterFactor*jitter)
}

// orForever turns a duration of which 0 means never into one that can be compared.
func orForever(d time.Duration) time.Duration {
	if d <= 0 {
		return forever
	}
	return d
}

func seconds(n int64) time.Duration {
	if n > math.MaxInt64/int64(time.Second) {
		return forever
	}
	return time.Duration(n) * time.Second
}

// effectiveGrace is the grace period in seconds that a pod is terminated with:
// the shortest of what was in force (0 for none), what the API server says of the
// deletion and what a kill asks for; if none of them says, that of the spec. It
// is 1 at least, as in kubelet, so that every process gets its stop signal and a
// moment to heed it, also where the API server was told not to wait.
func effectiveGrace(current int64, pod *v1.Pod, asked *int64) int64 {
	grace := shorter(shorter(current, pod.DeletionGracePeriodSeconds), asked)
	if grace == 0 {
		grace = max(1, runtime.GracePeriod(pod))
	}
	return grace
}

// shorter returns the shorter of current, unless that is 0 for none, and asked,
// unless that is nil. What is asked for counts as 1 at least.
func shorter(current int64, asked *int64) int64 {
	switch {
	case asked == nil:
		return current
	case current == 0:
		return max(1, *asked)
	default:
		return min(current, max(1, *asked))
	}
}
