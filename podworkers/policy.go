package podworkers

import (
	"math"
	"time"

	"github.com/kubeletkit/kubeletkit/internal/flow"
)

const (
	forever = time.Duration(math.MaxInt64)
	// jitterFactor is the largest part of a period that is added to it at random. Kubelet
	// has the same for both its periods.
	jitterFactor = 0.5
	// freeChanges is the number of syncs in a row that may change something without a
	// pause. A sync does everything that is possible at once, so two or three in a row
	// are normal: one for each step that has to wait for another.
	freeChanges = 5
	// firstPause is the pause after the first sync beyond freeChanges. It doubles.
	firstPause = 100 * time.Millisecond
	// maxRests is how often the time between resyncs of a pod at rest doubles.
	maxRests = 3
)

// policy has the delays between calls.
type policy struct {
	resyncInterval time.Duration // forever: no periodic resync
	base, limit    time.Duration // of the back-off after failed calls
}

// resync returns the time until a pod is synced without any update, if it was at rest in that many syncs before. It
// ends at a multiple of a 12th of the interval, by default 5 to 40 seconds, so that one wake-up of an idle agent, which
// costs as much as several syncs, serves many pods.
func (p policy) resync(now time.Time, jitter float64, rests int) time.Duration {
	if p.resyncInterval == forever {
		return forever
	}
	// Half of forever has room for the random part.
	interval := flow.Backoff{Min: p.resyncInterval, Max: forever / 2}.After(1 + min(rests, maxRests))
	wait := jittered(interval, jitter)
	if grid := interval / 12; grid > 0 {
		over := time.Duration(now.Add(wait).UnixNano()) % grid
		wait += (grid - over) % grid
	}
	return wait
}

// backoff returns the delay after that many failures in a row.
func (p policy) backoff(failures int, jitter float64) time.Duration {
	return jittered(flow.Backoff{Min: p.base, Max: p.limit}.After(failures), jitter)
}

// pause returns the delay after that many syncs in a row that changed something.
func (p policy) pause(changes int) time.Duration {
	return flow.Backoff{Min: min(firstPause, p.limit), Max: p.limit}.After(changes - freeChanges)
}

func jittered(d time.Duration, jitter float64) time.Duration {
	return d + time.Duration(float64(d)*jitterFactor*jitter)
}

// orForever returns d, or forever if d is 0, which means never.
func orForever(d time.Duration) time.Duration {
	if d <= 0 {
		return forever
	}
	return d
}
