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

// script drives one machine by hand.
type script struct {
	t   *testing.T
	now time.Time
	m   machine
	fx  effects // of the last event
}

func newScript(t *testing.T) *script { return &script{t: t, now: time.Unix(1000, 0)} }

func (s *script) on(ev any) *script {
	s.m, s.fx = s.m.on(testPolicy, s.now, ev)
	return s
}

func (s *script) update(u Update) *script {
	require.NoError(s.t, u.validate())
	return s.on(updated{Update: u, mark: 1})
}

// take expects that a call of the kind is due now.
func (s *script) take(kind callKind) call {
	s.t.Helper()
	m, c, ok := s.m.take(s.now)
	require.True(s.t, ok, "no call is due")
	require.Equal(s.t, kind, c.kind)
	s.m = m
	return c
}

// idle expects that no call is due now, and returns how long it is until one is;
// -1 is never.
func (s *script) idle() time.Duration {
	s.t.Helper()
	_, _, ok := s.m.take(s.now)
	require.False(s.t, ok, "a call is due")
	at, ok := s.m.due()
	if !ok {
		return -1
	}
	return at.Sub(s.now)
}

func (s *script) after(d time.Duration) *script { s.now = s.now.Add(d); return s }

func (s *script) ok() *script { return s.on(returned{mark: s.m.mark + 10}) }

func (s *script) fails() *script {
	return s.on(returned{err: errors.New("no"), mark: s.m.mark + 10})
}

// errRefused fails a pod for good.
var errRefused = fmt.Errorf("pod p: %w", errors.Join(errors.New("no"), &runtime.TerminalError{Reason: "Denied", Message: "privileged"}))

func (s *script) refuses() *script { return s.on(returned{err: errRefused, mark: s.m.mark + 10}) }

// status returns the status that a termination sets.
func status(c call) (s v1.PodStatus) {
	if c.term.Status != nil {
		c.term.Status(&s)
	}
	return s
}

func evict(pod *v1.Pod) Update {
	return Update{Type: Kill, Pod: pod, Kill: &KillOptions{Evict: true, Status: func(s *v1.PodStatus) { s.Phase, s.Reason = v1.PodFailed, "Evicted" }}}
}

func (s *script) result(r Result) *script { return s.on(returned{Result: r, mark: s.m.mark + 10}) }

func TestMachine(t *testing.T) {
	pod, file := apiPod("u", "p"), staticPod("u", "p")
	type step = func(s *script)

	for name, steps := range map[string]step{
		"what the syncer was not told, since the status could not be read, it is told later": func(s *script) {
			unread := returned{err: errors.New("away"), unread: true, mark: 5}
			s.update(Update{Type: Create, Pod: pod})
			assert.Equal(s.t, Create, s.take(callSync).typ)
			assert.Equal(s.t, Create, s.on(unread).after(10*time.Second).take(callSync).typ)
			s.ok().update(Update{Type: Change, Pod: pod})
			assert.Equal(s.t, Change, s.take(callSync).typ)
			assert.Equal(s.t, Change, s.on(unread).after(10*time.Second).take(callSync).typ)
			assert.Equal(s.t, Sync, s.fails().after(10*time.Second).take(callSync).typ, "this one was told, and failed")
		},
		"a pod is synced, then left alone until the resync": func(s *script) {
			s.update(Update{Type: Create, Pod: pod})
			assert.Equal(s.t, Create, s.take(callSync).typ)
			assert.Equal(s.t, time.Minute, s.ok().idle())
			assert.Equal(s.t, Sync, s.after(time.Minute).take(callSync).typ)
		},
		"the first sync is a Create whatever the update": func(s *script) {
			s.update(Update{Type: Sync, Pod: pod})
			assert.Equal(s.t, Create, s.take(callSync).typ)
		},
		"updates during a sync are merged, the latest pod counts": func(s *script) {
			s.update(Update{Type: Create, Pod: pod}).take(callSync)
			latest := testpod.With(pod, testpod.Phase(v1.PodRunning))
			s.update(Update{Type: Change, Pod: pod}).update(Update{Type: Sync, Pod: latest})
			s.idle()
			c := s.ok().take(callSync)
			assert.Equal(s.t, Change, c.typ)
			assert.Same(s.t, latest, c.pod)
		},
		"the oldest time of receipt counts": func(s *script) {
			old := s.now.Add(-time.Minute)
			s.update(Update{Type: Create, Pod: pod, Received: old}).update(Update{Type: Sync, Pod: pod, Received: s.now})
			assert.Equal(s.t, old, s.take(callSync).received)
		},
		"a sync that changed nothing keeps its mark, others need a newer status": func(s *script) {
			s.update(Update{Type: Create, Pod: pod})
			assert.EqualValues(s.t, 1, s.take(callSync).after)
			s.ok().update(Update{Type: Sync, Pod: pod})
			assert.EqualValues(s.t, 1, s.take(callSync).after)
			assert.EqualValues(s.t, 11, s.result(Result{Changed: true}).take(callSync).after)
			assert.EqualValues(s.t, 21, s.fails().after(time.Second).take(callSync).after)
		},
		"changes are followed up at once, but not for ever": func(s *script) {
			s.update(Update{Type: Create, Pod: pod})
			for range freeChanges {
				s.take(callSync)
				s.result(Result{Changed: true})
			}
			for _, pause := range []time.Duration{100, 200, 400, 800, 1600, 3200, 6400, 10000, 10000} {
				s.take(callSync)
				assert.Equal(s.t, pause*time.Millisecond, s.result(Result{Changed: true}).idle())
				s.update(Update{Type: Sync, Pod: pod})
				assert.Equal(s.t, pause*time.Millisecond, s.idle(), "a hint does not end the pause")
				s.after(pause * time.Millisecond)
			}
			s.take(callSync)
			s.result(Result{Changed: true}).update(Update{Type: Change, Pod: pod}).take(callSync)
			s.result(Result{Changed: true}).take(callSync)
		},
		"the syncer says when to come again": func(s *script) {
			s.update(Update{Type: Create, Pod: pod}).take(callSync)
			assert.Equal(s.t, 20*time.Second, s.result(Result{RetryAfter: 20 * time.Second}).idle())
			s.after(20 * time.Second).take(callSync)
			assert.Equal(s.t, time.Minute, s.result(Result{RetryAfter: time.Hour}).idle())
		},
		"errors back off, up to a limit": func(s *script) {
			s.update(Update{Type: Create, Pod: pod})
			for _, wait := range []time.Duration{1, 2, 4, 8, 10, 10} {
				s.take(callSync)
				assert.Equal(s.t, wait*time.Second, s.fails().idle())
				s.after(wait * time.Second)
			}
			s.take(callSync)
			s.ok().after(time.Minute).take(callSync)
			assert.Equal(s.t, time.Second, s.fails().idle(), "success has reset the back-off")
		},
		"up to a half of a period is added at random": func(s *script) {
			s.update(Update{Type: Create, Pod: pod}).take(callSync)
			assert.Equal(s.t, 90*time.Second, s.on(returned{jitter: 1}).idle())
			s.after(90 * time.Second).take(callSync)
			assert.Equal(s.t, 1500*time.Millisecond, s.on(returned{jitter: 1, err: errors.New("no")}).idle())
		},
		"a retry that is due before the end of the back-off wins": func(s *script) {
			s.update(Update{Type: Create, Pod: pod}).take(callSync)
			assert.Equal(s.t, 300*time.Millisecond, s.on(returned{err: errors.New("no"), Result: Result{RetryAfter: 300 * time.Millisecond}}).idle())
		},
		"a hint shortens the back-off to its base, a change ends it": func(s *script) {
			s.update(Update{Type: Create, Pod: pod})
			for range 5 {
				s.take(callSync)
				s.fails().after(10 * time.Second)
			}
			s.take(callSync)
			s.update(Update{Type: Sync, Pod: pod}).fails()
			assert.Equal(s.t, time.Second, s.idle(), "it came during the call")
			s.after(time.Second).take(callSync)
			assert.Equal(s.t, 9*time.Second, s.fails().after(time.Second).idle())
			s.update(Update{Type: Sync, Pod: pod}).take(callSync)
			s.fails().update(Update{Type: Change, Pod: pod}).take(callSync)
		},
		"a kill cancels the sync, and goes through the phases": func(s *script) {
			s.update(Update{Type: Create, Pod: pod}).take(callSync)
			called := 0
			s.update(Update{Type: Kill, Pod: pod, Kill: &KillOptions{Done: func() { called++ }}})
			assert.ErrorIs(s.t, s.fx.cancel, ErrTerminating)
			assert.Equal(s.t, PhaseSync, s.m.phase, "a SyncPod is still under way")
			assert.True(s.t, s.m.snapshot().TerminationRequested())
			c := s.fails().take(callTerminating)
			assert.EqualValues(s.t, 30, *c.term.GracePeriod)
			assert.Equal(s.t, neverSkip, c.skip)
			s.fails().after(time.Second).take(callTerminating)
			assert.Empty(s.t, s.fx.done)
			require.Len(s.t, s.ok().fx.done, 1)
			assert.Equal(s.t, PhaseTerminated, s.m.phase)
			s.take(callTerminated)
			assert.Equal(s.t, time.Second, s.fails().idle())
			s.after(time.Second).take(callTerminated)
			assert.EqualValues(s.t, -1, s.ok().idle())
			assert.True(s.t, s.m.finished)
			s.update(Update{Type: Kill, Pod: pod, Kill: &KillOptions{Done: func() {}}})
			assert.Len(s.t, s.fx.done, 1, "nothing runs: done at once")
			assert.EqualValues(s.t, -1, s.update(Update{Type: Change, Pod: pod}).idle(), "no way back")
		},
		"an update does not take a kill back": func(s *script) {
			s.update(Update{Type: Create, Pod: pod}).update(Update{Type: Kill, Pod: pod})
			s.update(Update{Type: Change, Pod: pod}).update(Update{Type: Sync, Pod: pod})
			s.take(callTerminating)
			s.update(Update{Type: Change, Pod: pod}).ok().take(callTerminated)
		},
		"a pod that ended by itself is terminated": func(s *script) {
			s.update(Update{Type: Create, Pod: pod}).take(callSync)
			c := s.result(Result{Terminal: true}).take(callTerminating)
			assert.EqualValues(s.t, 30, *c.term.GracePeriod)
			assert.Equal(s.t, neverSkip, c.skip)
		},
		"Terminal does not count with an error": func(s *script) {
			s.update(Update{Type: Create, Pod: pod}).take(callSync)
			s.on(returned{Result: Result{Terminal: true}, err: errors.New("no")}).idle()
			assert.Equal(s.t, PhaseSync, s.m.phase)
		},
		"a SyncPod can fail its pod for good": func(s *script) {
			s.update(Update{Type: Create, Pod: pod}).take(callSync)
			s.refuses()
			assert.Equal(s.t, "Denied", s.fx.failure.Reason)
			assert.NoError(s.t, s.fx.cancel)
			assert.Zero(s.t, s.fx.backoff, "it is not repeated")
			assert.Equal(s.t, "Denied", s.m.snapshot().Failure.Reason)
			assert.False(s.t, s.m.snapshot().Deleted)
			c := s.take(callTerminating)
			assert.EqualValues(s.t, 30, *c.term.GracePeriod, "its own, as if it had ended by itself")
			assert.Equal(s.t, neverSkip, c.skip, "there is a status to report")
			assert.Equal(s.t, v1.PodStatus{Phase: v1.PodFailed, Reason: "Denied", Message: "privileged"}, status(c))
			again := s.fails().after(time.Second).take(callTerminating)
			assert.Equal(s.t, "Denied", status(again).Reason)
			s.ok().take(callTerminated)
			assert.Equal(s.t, "Denied", s.ok().m.snapshot().Failure.Reason, "as long as it is known")
			assert.True(s.t, s.m.finished)
		},
		"no update takes a failure for good back": func(s *script) {
			s.update(Update{Type: Create, Pod: pod}).take(callSync)
			s.update(Update{Type: Change, Pod: pod}).update(Update{Type: Sync, Pod: pod}).refuses()
			s.update(Update{Type: Change, Pod: pod}).update(Update{Type: Sync, Pod: pod})
			assert.Equal(s.t, "Denied", status(s.take(callTerminating)).Reason)
			s.update(Update{Type: Change, Pod: pod}).ok().take(callTerminated)
			assert.EqualValues(s.t, -1, s.ok().update(Update{Type: Change, Pod: pod}).idle())
		},
		"the next incarnation of a pod that failed for good begins anew": func(s *script) {
			s.update(Update{Type: Create, Pod: pod}).take(callSync)
			s.refuses().update(Update{Type: Create, Pod: pod}).take(callTerminating)
			assert.Equal(s.t, "Denied", s.m.snapshot().Failure.Reason)
			s.ok().take(callTerminated)
			assert.Equal(s.t, Create, s.ok().take(callSync).typ)
			assert.Nil(s.t, s.m.snapshot().Failure)
			s.refuses().take(callTerminating)
			s.ok().take(callTerminated)
			s.ok().update(Update{Type: Create, Pod: pod})
			assert.Equal(s.t, Create, s.take(callSync).typ)
			assert.Nil(s.t, s.m.snapshot().Failure)
		},
		"a failure for good during a kill gives the kill its status": func(s *script) {
			s.update(Update{Type: Create, Pod: pod}).take(callSync)
			s.update(killIn(pod, 5)).refuses()
			assert.Equal(s.t, "Denied", s.fx.failure.Reason)
			c := s.take(callTerminating)
			assert.EqualValues(s.t, 5, *c.term.GracePeriod)
			assert.Equal(s.t, "Denied", status(c).Reason)
		},
		"the status of a kill that came first stays": func(s *script) {
			s.update(Update{Type: Create, Pod: pod}).take(callSync)
			s.update(evict(pod)).refuses()
			assert.Nil(s.t, s.fx.failure)
			assert.Nil(s.t, s.m.snapshot().Failure)
			assert.Equal(s.t, "Evicted", status(s.take(callTerminating)).Reason)
		},
		"the reason of a failure for good stays, whatever kill comes after it": func(s *script) {
			s.update(Update{Type: Create, Pod: pod}).take(callSync)
			s.refuses().take(callTerminating)
			s.update(killIn(pod, 2))
			assert.ErrorIs(s.t, s.fx.cancel, ErrShortened)
			c := s.fails().take(callTerminating)
			assert.EqualValues(s.t, 2, *c.term.GracePeriod)
			assert.Equal(s.t, "Denied", status(c).Reason)
			s.update(evict(pod))
			c = s.ok().take(callTerminating)
			assert.True(s.t, c.term.Evicted, "which is to be known all the same")
			assert.Equal(s.t, "Denied", status(c).Reason)
			s.update(evict(pod)).ok().take(callTerminated)
		},
		"a status that cannot be read fails nobody for good": func(s *script) {
			s.update(Update{Type: Create, Pod: pod}).take(callSync)
			s.on(returned{err: errRefused, unread: true, mark: 5})
			assert.Equal(s.t, Create, s.after(10*time.Second).take(callSync).typ)
		},
		"only SyncPod can fail a pod for good": func(s *script) {
			s.update(Update{Type: Create, Pod: pod}).update(Update{Type: Kill, Pod: pod}).take(callTerminating)
			s.refuses().after(time.Second).take(callTerminating)
			assert.Nil(s.t, s.m.snapshot().Failure)
			s.ok().take(callTerminated)
			s.refuses().after(time.Second).take(callTerminated)
		},
		"a deletion in the API terminates": func(s *script) {
			s.update(Update{Type: Create, Pod: pod}).take(callSync)
			s.update(Update{Type: Change, Pod: testpod.With(pod, testpod.Deleted(7))})
			assert.ErrorIs(s.t, s.fx.cancel, ErrTerminating)
			assert.EqualValues(s.t, 7, *s.ok().take(callTerminating).term.GracePeriod)
			assert.True(s.t, s.m.end.deleted)
		},
		"a terminal phase terminates": func(s *script) {
			s.update(Update{Type: Create, Pod: pod}).take(callSync)
			s.update(Update{Type: Change, Pod: testpod.With(pod, testpod.Phase(v1.PodFailed))})
			assert.ErrorIs(s.t, s.fx.cancel, ErrTerminating)
			assert.False(s.t, s.m.end.deleted)
		},
		"a pod that comes in a terminal phase needs no stop if nothing runs": func(s *script) {
			s.update(Update{Type: Create, Pod: testpod.With(pod, testpod.Phase(v1.PodSucceeded))})
			assert.Equal(s.t, skipIfNoneRuns, s.take(callTerminating).skip)
			s.ok().take(callTerminated)
		},
		"a pod killed before its start needs no stop if nothing exists": func(s *script) {
			s.update(Update{Type: Create, Pod: pod}).update(Update{Type: Kill, Pod: pod})
			assert.Equal(s.t, skipIfAbsent, s.take(callTerminating).skip)
		},
		"unless there is a status to report": func(s *script) {
			s.update(Update{Type: Create, Pod: pod}).update(Update{Type: Kill, Pod: pod, Kill: &KillOptions{Status: func(*v1.PodStatus) {}}})
			assert.Equal(s.t, neverSkip, s.take(callTerminating).skip)
		},
		"a second kill shortens at once, a longer one changes nothing": func(s *script) {
			s.update(Update{Type: Create, Pod: pod}).take(callSync)
			s.ok().update(killIn(pod, 20)).take(callTerminating)
			assert.NoError(s.t, s.update(killIn(pod, 25)).fx.cancel)
			assert.ErrorIs(s.t, s.update(killIn(pod, 5)).fx.cancel, ErrShortened)
			assert.NoError(s.t, s.update(killIn(pod, 3)).fx.cancel, "it was cancelled already")
			assert.EqualValues(s.t, 3, *s.fails().take(callTerminating).term.GracePeriod)
			assert.Zero(s.t, s.m.schedule.failures)
		},
		"a shorter grace that would end later cancels nothing": func(s *script) {
			s.update(Update{Type: Create, Pod: pod}).update(killIn(pod, 20)).take(callTerminating)
			s.after(15 * time.Second)
			assert.NoError(s.t, s.update(killIn(pod, 10)).fx.cancel)
			assert.EqualValues(s.t, 10, s.m.end.grace, "but holds for another try")
			assert.ErrorIs(s.t, s.update(killIn(pod, 4)).fx.cancel, ErrShortened)
		},
		"a shortened call that succeeds all the same has succeeded": func(s *script) {
			s.update(Update{Type: Create, Pod: pod}).update(killIn(pod, 20)).take(callTerminating)
			s.update(killIn(pod, 2)).ok().take(callTerminated)
		},
		"an eviction during the termination is made known": func(s *script) {
			s.update(Update{Type: Create, Pod: pod}).take(callSync)
			s.ok().update(Update{Type: Kill, Pod: pod}).take(callTerminating)
			s.update(Update{Type: Kill, Pod: pod, Kill: &KillOptions{Evict: true, Status: func(*v1.PodStatus) {}}})
			c := s.ok().take(callTerminating)
			assert.True(s.t, c.term.Evicted)
			assert.NotNil(s.t, c.term.Status)
			s.ok().take(callTerminated)
		},
		"a UID that is created again starts when the first has finished": func(s *script) {
			s.update(Update{Type: Create, Pod: file}).on(mayStart{}).take(callSync)
			s.update(Update{Type: Kill, Pod: file})
			again := testpod.With(file, testpod.Deleted(1))
			again.DeletionTimestamp = nil
			s.update(Update{Type: Create, Pod: file}).update(Update{Type: Change, Pod: again})
			assert.True(s.t, s.m.snapshot().RestartRequested)
			s.fails().take(callTerminating)
			s.ok().take(callTerminated)
			s.ok()
			assert.Equal(s.t, claimWaits, s.m.claim())
			c := s.on(mayStart{}).take(callSync)
			assert.Equal(s.t, Create, c.typ)
			assert.Same(s.t, again, c.pod)
			assert.Equal(s.t, s.m.mark, c.after)
			assert.Greater(s.t, c.after, runtime.Mark(1), "a status from before is of no use")
		},
		"a finished UID that is created starts at once": func(s *script) {
			s.update(Update{Type: Create, Pod: pod}).update(Update{Type: Kill, Pod: pod}).take(callTerminating)
			s.ok().take(callTerminated)
			s.ok().update(Update{Type: Create, Pod: pod})
			assert.Equal(s.t, Create, s.take(callSync).typ)
		},
		"a kill after the second creation is for both": func(s *script) {
			s.update(Update{Type: Create, Pod: pod}).update(Update{Type: Kill, Pod: pod}).take(callTerminating)
			s.update(Update{Type: Create, Pod: pod}).update(Update{Type: Kill, Pod: pod, Kill: &KillOptions{Done: func() {}}})
			assert.Len(s.t, s.ok().fx.done, 1)
			s.take(callTerminated)
			assert.EqualValues(s.t, -1, s.ok().idle())
			assert.True(s.t, s.m.finished)
		},
		"a second incarnation that is not desired is dropped": func(s *script) {
			s.update(Update{Type: Create, Pod: pod}).update(Update{Type: Kill, Pod: pod}).take(callTerminating)
			s.update(Update{Type: Create, Pod: pod}).on(compared{desired: false}).ok().take(callTerminated)
			s.ok()
			assert.True(s.t, s.m.finished)
		},
		"an orphan is terminated and forgotten": func(s *script) {
			s.update(Update{Type: Kill, Orphan: orphan("u", "p"), Kill: &KillOptions{Done: func() {}}})
			c := s.take(callOrphan)
			assert.Nil(s.t, c.term.GracePeriod)
			assert.Equal(s.t, "p", c.orphan.Name)
			s.fails().after(time.Second).take(callOrphan)
			assert.Len(s.t, s.ok().fx.done, 1)
			assert.False(s.t, s.m.known())
		},
		"an orphan may be hurried": func(s *script) {
			s.update(Update{Type: Kill, Orphan: orphan("u", "p")}).take(callOrphan)
			s.update(Update{Type: Kill, Orphan: orphan("u", "p"), Kill: &KillOptions{GracePeriod: new(int64(0))}})
			assert.ErrorIs(s.t, s.fx.cancel, ErrShortened)
			assert.EqualValues(s.t, 1, *s.fails().take(callOrphan).term.GracePeriod)
		},
		"a pod that comes while its orphan ends starts after it": func(s *script) {
			s.update(Update{Type: Kill, Orphan: orphan("u", "p")}).take(callOrphan)
			s.update(Update{Type: Create, Pod: pod}).update(Update{Type: Change, Pod: pod}).idle()
			assert.True(s.t, s.m.snapshot().RestartRequested)
			c := s.ok().take(callSync)
			assert.Equal(s.t, Create, c.typ)
			assert.EqualValues(s.t, 11, c.after)
		},
		"a pod that is killed while its orphan ends is terminated after it": func(s *script) {
			s.update(Update{Type: Kill, Orphan: orphan("u", "p")}).take(callOrphan)
			u := killIn(pod, 9)
			u.Kill.Done, u.Kill.Evict = func() {}, true
			s.update(u)
			assert.ErrorIs(s.t, s.fx.cancel, ErrShortened)
			s.update(killIn(pod, 20)).update(Update{Type: Sync, Pod: pod})
			assert.Len(s.t, s.ok().fx.done, 1)
			c := s.take(callTerminating)
			assert.True(s.t, c.term.Evicted)
			assert.EqualValues(s.t, 9, *c.term.GracePeriod)
		},
		"a pod in order that is claimed to be an orphan is terminated": func(s *script) {
			s.update(Update{Type: Create, Pod: pod}).take(callSync)
			s.ok().update(Update{Type: Kill, Orphan: orphan("u", "p")})
			assert.Same(s.t, pod, s.take(callTerminating).pod)
			assert.True(s.t, s.m.end.deleted)
		},
		"what is not desired is terminated, and forgotten when finished": func(s *script) {
			s.update(Update{Type: Create, Pod: pod}).take(callSync)
			s.on(compared{desired: true})
			assert.NoError(s.t, s.fx.cancel)
			s.on(compared{desired: false})
			assert.ErrorIs(s.t, s.fx.cancel, ErrTerminating)
			assert.EqualValues(s.t, 30, *s.ok().take(callTerminating).term.GracePeriod)
			s.on(compared{desired: false}).ok().take(callTerminated)
			s.ok().on(compared{desired: false})
			assert.False(s.t, s.m.known())
		},
		"a finished pod that is desired is remembered": func(s *script) {
			s.update(Update{Type: Create, Pod: pod}).take(callSync)
			s.result(Result{Terminal: true}).take(callTerminating)
			s.ok().take(callTerminated)
			s.ok().on(compared{desired: true})
			assert.True(s.t, s.m.finished)
		},
		"a static pod starts when it may": func(s *script) {
			s.update(Update{Type: Create, Pod: file})
			assert.EqualValues(s.t, -1, s.idle())
			assert.True(s.t, s.m.snapshot().Waiting)
			s.on(mayStart{}).take(callSync)
		},
		"a static pod that is killed while it waits never starts": func(s *script) {
			s.update(Update{Type: Create, Pod: file}).update(Update{Type: Kill, Pod: file})
			assert.Equal(s.t, claimHolds, s.m.claim(), "an earlier agent may have started it")
			s.take(callTerminating)
			s.ok()
			assert.Equal(s.t, claimNone, s.m.claim())
			s.take(callTerminated)
		},
	} {
		t.Run(name, func(t *testing.T) { steps(newScript(t)) })
	}
}
