package podworkers

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/runtime"
)

var testPolicy = policy{resyncInterval: time.Minute, base: time.Second, limit: 10 * time.Second}

// errRefused fails a pod for good.
var errRefused = fmt.Errorf("pod p: %w",
	errors.Join(errors.New("no"), &runtime.TerminalError{Reason: "Denied", Message: "privileged"}))

// status returns the status that a termination sets.
func status(c call) (s v1.PodStatus) {
	if c.term.Status != nil {
		c.term.Status(&s)
	}
	return s
}

// driver drives one machine. What a machine does is in the scenarios; here is what their output lacks.
type driver struct {
	*testing.T
	now time.Time
	m   machine
}

func (d *driver) on(events ...any) *driver {
	for _, ev := range events {
		if u, ok := ev.(Update); ok {
			require.NoError(d, u.validate())
			ev = updated{Update: u, mark: 1}
		}
		d.m, _ = d.m.on(testPolicy, d.now, ev)
	}
	return d
}

// take expects that a call is due after the time.
func (d *driver) take(after time.Duration) call {
	d.Helper()
	d.now = d.now.Add(after)
	m, c, ok := d.m.take(d.now)
	require.True(d, ok, "no call is due")
	d.m = m
	return c
}

func TestMarksOfCalls(t *testing.T) {
	pod := apiPod("u", "p")
	d := &driver{T: t, now: time.Unix(1000, 0)}
	d.on(Update{Type: Create, Pod: pod})
	assert.EqualValues(t, 1, d.take(0).after)
	d.on(returned{mark: 10}, Update{Type: Sync, Pod: pod})
	assert.EqualValues(t, 1, d.take(0).after, "the call has changed nothing")
	d.on(returned{mark: 20, Result: Result{Changed: true}})
	assert.EqualValues(t, 20, d.take(0).after)
	d.on(returned{mark: 30, err: errors.New("no")})
	assert.EqualValues(t, 30, d.take(time.Second).after)
	d.on(Update{Type: Kill, Pod: pod}, Update{Type: Create, Pod: pod}, returned{mark: 40})
	assert.EqualValues(t, 40, d.take(0).after)
	d.on(returned{mark: 50})
	assert.EqualValues(t, 50, d.take(0).after)
	d.on(returned{mark: 60})
	next := d.take(0)
	assert.Equal(t, Create, next.typ)
	assert.EqualValues(t, 60, next.after, "a status from before the next incarnation is of no use")
}

func TestTheLatestSpecAndTheOldestReceiptCount(t *testing.T) {
	pod := apiPod("u", "p")
	latest := testpod.With(pod, testpod.Phase(v1.PodRunning))
	d := &driver{T: t, now: time.Unix(1000, 0)}
	oldest := d.now.Add(-time.Minute)
	d.on(Update{Type: Create, Pod: pod, Received: oldest}, Update{Type: Sync, Pod: latest, Received: d.now})
	c := d.take(0)
	assert.Same(t, latest, c.pod)
	assert.Equal(t, oldest, c.received)
	again := testpod.With(pod)
	d.on(Update{Type: Kill, Pod: pod}, Update{Type: Create, Pod: pod}, Update{Type: Change, Pod: again}, returned{})
	assert.Same(t, pod, d.take(0).pod)
	d.on(returned{})
	d.take(0)
	assert.Same(t, again, d.on(returned{}).take(0).pod, "also of the next incarnation")
}
