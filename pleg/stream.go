package pleg

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/runtime"
)

var (
	errMissedChanges = errors.New("relists have found changes that the event stream did not report")
	// errStreamEnded stands for the error that an event source did not return.
	errStreamEnded = errors.New("the event stream has ended")
)

// longestPause is the longest pause before a stream is opened again. If a stream has
// lasted longer than that, the next pause is the shortest again.
const longestPause = 5 * time.Second

// pause returns the pause after that many streams in a row that ended soon. From 100 ms it
// doubles up to longestPause. Up to a quarter is added at random, so that several agents
// do not open their streams at the same time.
func pause(failures int) time.Duration {
	const jitter = 0.25
	limits := flow.Backoff{Min: 100 * time.Millisecond, Max: longestPause * 4 / 5}
	return wait.Jitter(limits.After(failures), jitter)
}

// streamState is the state of the event stream.
type streamState struct {
	// attempt counts the attempts to open a stream, 0 before the first.
	attempt uint64
	phase   phase
	// unsupported means that the runtime has no stream.
	unsupported bool
	// giveUp ends the stream.
	giveUp context.CancelCauseFunc
}

// watch keeps the event stream open until ctx ends, or until the runtime turns out to
// have none. It runs in a goroutine of its own.
func (g *generator) watch(ctx context.Context) {
	failures := 0
	for {
		began := time.Now()
		err := g.watchOnce(ctx)
		if ctx.Err() != nil {
			return
		}
		g.opts.Measure.Emit(Connected{err})
		unsupported := errors.Is(err, errors.ErrUnsupported)
		g.stream.ended(err, unsupported)
		if unsupported {
			return
		}
		if time.Since(began) > longestPause && !errors.Is(err, errMissedChanges) {
			failures = 0
		}
		failures++
		if !flow.Sleep(ctx, pause(failures)) {
			return
		}
	}
}

// watchOnce opens the event stream once. It returns the reason why the stream has ended,
// never nil.
func (g *generator) watchOnce(ctx context.Context) error {
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	g.stream.opened(giveUp)
	established := func() {
		if g.stream.established() {
			g.opts.Measure.Emit(Connected{})
		}
	}
	hint := func(h runtime.Hint) {
		if g.stream.hint(h, g.cache.Now()) {
			g.opts.Measure.Emit(Connected{})
		}
		g.opts.Measure.Emit(Hinted{h.Age})
	}
	err := runtime.Recover(func() error { return g.source.WatchEvents(ctx, established, hint) })
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if err == nil {
		return errStreamEnded
	}
	return err
}

// takeStreamState handles the state of the stream. broken is the error with which a stream
// has ended since the last time, nil if none has.
func (g *generator) takeStreamState(state streamState, broken error) {
	was := g.streamState
	g.streamState = state
	if broken != nil {
		g.streamEnded(broken)
	}
	if state.phase != closed && state.attempt != was.attempt {
		g.schedule.streamOpened()
	}
	if state.phase == established && g.schedule.phase != established {
		log := g.opts.Logger
		if !g.loggedBroken {
			log = log.V(1) // as it should be
		}
		g.loggedBroken = false
		g.schedule.streamEstablished(time.Now())
		log.Info("The runtime's event stream is established; relists are a safety net from now on",
			"period", g.opts.SafetyPeriod)
	}
}

func (g *generator) streamEnded(err error) {
	log := g.opts.Logger
	switch {
	case g.streamState.unsupported:
		log.Info("The runtime has no event stream; relisting", "period", g.opts.RelistPeriod, "err", err)
	case !g.loggedBroken:
		g.loggedBroken = true
		log.Info("The runtime's event stream is broken; relisting until it is back", "period", g.opts.RelistPeriod,
			"err", err)
	default:
		log.V(4).Info("Still no event stream", "err", err)
	}
	g.schedule.streamEnded(time.Now())
}

// reportMissed reports the changes that the stream has missed, and ends the stream if it
// has missed too many.
func (g *generator) reportMissed(now time.Time) {
	missed, giveUp := g.schedule.takeMissed(now)
	if len(missed) == 0 {
		return
	}
	for _, ref := range missed {
		g.opts.Logger.Info("A relist found a change that the event stream had not reported", "pod", ref)
	}
	g.opts.Measure.Emit(Missed{len(missed)})
	if giveUp {
		g.streamState.giveUp(errMissedChanges)
	}
}
