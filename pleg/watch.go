package pleg

import (
	"context"
	"errors"
	"math"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kubeletkit/kubeletkit/runtime"
)

var (
	// errDeaf is why a generator gives a stream up.
	errDeaf = errors.New("relists have found changes that the event stream did not tell of")
	// errEnded stands for the error that a source did not return.
	errEnded = errors.New("the event stream has ended")
)

// longestPause is what the pause before a stream is opened anew grows to, jitter
// included. A stream that has lasted longer begins with the shortest pause again.
const longestPause = 5 * time.Second

// pauses returns the pauses between attempts: from 100 ms they double up to
// longestPause, each lengthened at random by a quarter at most, so that the agents
// of many machines, or several on one, do not come all at once.
func pauses() wait.Backoff {
	const jitter = 0.25
	return wait.Backoff{
		Duration: 100 * time.Millisecond, Factor: 2, Jitter: jitter, Steps: math.MaxInt32,
		Cap: time.Duration(float64(longestPause) / (1 + jitter)),
	}
}

// watch keeps the event stream open until ctx ends, or until the runtime turns out
// to have none.
func (e *engine) watch(ctx context.Context) {
	pause := pauses()
	for {
		began := time.Now()
		err := e.subscribe(ctx)
		if ctx.Err() != nil {
			return
		}
		e.opts.Metrics.Connected(err)
		never := errors.Is(err, errors.ErrUnsupported)
		e.news.tell(func(n *news) {
			n.stream = streamState{n: n.stream.n, never: never}
			n.broken = err
		})
		if never {
			return
		}
		if time.Since(began) > longestPause && !errors.Is(err, errDeaf) {
			pause = pauses()
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause.Step()):
		}
	}
}

// subscribe opens the event stream once, and returns why it has ended.
func (e *engine) subscribe(ctx context.Context) error {
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	e.news.tell(func(n *news) {
		n.stream = streamState{n: n.stream.n + 1, open: true, giveUp: giveUp}
	})
	// tell has the news changed by what has come from the stream, which therefore stands.
	tell := func(change func(*news)) {
		first := false
		e.news.tell(func(n *news) {
			first = !n.stream.up
			n.stream.up = true
			change(n)
		})
		if first {
			e.opts.Metrics.Connected(nil)
		}
	}
	err := e.source.WatchEvents(ctx, func() { tell(func(*news) {}) }, func(h runtime.Hint) {
		mark := e.cache.Now()
		tell(func(n *news) { n.hint(h, mark) })
		e.opts.Metrics.Hinted(h.Age)
	})
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if err == nil {
		return errEnded
	}
	return err
}
