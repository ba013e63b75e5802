package pleg_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/kubeletkit/kubeletkit/pleg"
	"github.com/kubeletkit/kubeletkit/pleg/plegtest"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// The scripts of this file play a runtime whose pods change at any moment, while
// calls are slow, fail and hang, workers read the cache, and a reader takes
// events now and then. It compares the events with what the generator has
// received from the runtime.

// play runs a script, in which each byte is a step, and returns what went wrong.
func play(t *testing.T, evented bool, script []byte) (err error) {
	synctest.Test(t, func(t *testing.T) {
		w := plegtest.NewRuntime()
		p := &player{
			w: w, cache: runtime.NewCache(w, runtime.CacheOptions{}), evented: evented, metrics: &recorder{},
			died: map[string]bool{}, mustDie: map[string]bool{},
			alive: map[string]types.UID{}, views: map[types.UID]string{},
			random: rand.New(rand.NewPCG(1, 2)),
		}
		w.Do(func(s *plegtest.State) {
			s.Stream.Unannounced = true
			s.OnList = func(pods []*runtime.Pod) {
				for _, pod := range pods {
					for i := range pod.Containers {
						p.saw(pod.UID, &pod.Containers[i])
					}
				}
			}
			s.OnInspect = func(ctx context.Context, status *runtime.PodStatus) {
				if ctx.Value(foreign{}) != nil {
					return
				}
				for i := range status.Containers {
					p.saw(status.UID, &status.Containers[i].Container)
				}
			}
		})
		opts := pleg.Options{MaxInspections: 2, InspectTimeout: 5 * time.Second,
			Observer: runtime.Observer{Measure: p.metrics.measure}}
		p.g = pleg.NewGeneric(w, p.cache, opts)
		if evented {
			p.g = pleg.NewEvented(w, p.cache, pleg.EventedOptions{Options: opts, SafetyPeriod: 20 * time.Second})
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = p.g.Run(ctx)
		}()
		for _, b := range script {
			p.step(ctx, b)
		}
		p.settle()
		stop()
		<-ended
		synctest.Wait() // for the workers
		err = p.err
	})
	return err
}

type player struct {
	w       *plegtest.Runtime
	metrics *recorder
	cache   *runtime.Cache
	g       pleg.Generator
	evented bool
	made    int
	random  *rand.Rand
	err     error
	// died are the containers whose end was reported, mustDie those that the generator
	// saw exited, in a list or a status; alive those that it saw in another state, with
	// their pods.
	died, mustDie map[string]bool
	alive         map[string]types.UID
	// views are the statuses that the cache had when the reader took the last events of
	// each pod.
	views map[types.UID]string
}

// foreign is the key of a value in the contexts of reads that are not the
// generator's.
type foreign struct{}

func (p *player) fail(format string, args ...any) {
	if p.err == nil {
		p.err = fmt.Errorf(format, args...)
	}
}

// saw notes a container that the generator receives. It is called inside Do.
func (p *player) saw(uid types.UID, c *runtime.Container) {
	if c.State == runtime.ContainerExited {
		p.mustDie[c.ID.ID] = true
	} else {
		p.alive[c.ID.ID] = uid
	}
}

// step makes one change: the low bits choose which, the high bits choose the pod.
func (p *player) step(ctx context.Context, b byte) {
	uid := types.UID(fmt.Sprint("p", b>>5&3))
	w := p.w
	if b>>7 == 1 { // half of the steps let time pass
		times := []time.Duration{10, 50, 100, 300, 1000, 1100, 2500, 7000}
		if p.evented {
			times = []time.Duration{10, 50, 100, 300, 1000, 2500, 8000, 30_000}
		}
		time.Sleep(times[b&7] * time.Millisecond)
		return
	}
	if p.evented {
		switch b & 31 { // what there are two of
		case 16, 18, 25, 30:
			p.streamStep(int(b>>5&3)<<2 | map[byte]int{16: 0, 18: 1, 25: 2, 30: 3}[b&31])
			return
		}
	}
	switch b & 31 {
	case 0, 1, 2, 3:
		p.make(uid, []runtime.ContainerState{"created", "running", "running", "exited"}[b&3])
	case 4, 5, 6, 7, 8, 9: // the first container that can goes on in its life
		p.advance(uid, runtime.ContainerExited, b&1 == 0)
	case 10:
		p.advance(uid, runtime.ContainerUnknown, false)
	case 11, 12: // a dead container is removed
		w.Do(func(s *plegtest.State) {
			if pod := s.Pods[uid]; pod != nil {
				pod = plegtest.Clone(pod)
				pod.Containers = slices.DeleteFunc(pod.Containers,
					func(c runtime.Container) bool { return c.State == runtime.ContainerExited })
				s.Pods[uid] = pod
			}
		})
	case 13: // all is gone
		w.Do(func(s *plegtest.State) { delete(s.Pods, uid) })
	case 14: // a container is there just long enough for a worker to read it
		id := p.make(uid, runtime.ContainerRunning)
		go func() {
			p.work(ctx, uid)
			w.Do(func(s *plegtest.State) {
				if pod := s.Pods[uid]; pod != nil {
					pod = plegtest.Clone(pod)
					pod.Containers = slices.DeleteFunc(pod.Containers,
						func(c runtime.Container) bool { return c.ID.ID == id })
					s.Pods[uid] = pod
				}
			})
		}()
	case 15, 16: // the sandbox dies
		w.Do(func(s *plegtest.State) {
			if pod := s.Pods[uid]; pod != nil {
				pod = plegtest.Clone(pod)
				pod.Sandboxes[0].State = runtime.SandboxNotReady
				s.Pods[uid] = pod
			}
		})
	case 17, 18:
		w.Do(func(s *plegtest.State) { s.Broken[uid] = !s.Broken[uid] })
	case 19:
		w.Do(func(s *plegtest.State) { s.Hung[uid] = !s.Hung[uid] })
	case 20:
		w.Do(func(s *plegtest.State) {
			if s.ListErr == nil {
				s.ListErr = plegtest.ErrInjected
			} else {
				s.ListErr = nil
			}
		})
	case 21:
		w.Do(func(s *plegtest.State) { s.ListTakes = 200*time.Millisecond - s.ListTakes })
	case 22:
		w.Do(func(s *plegtest.State) { s.InspectTakes = 150*time.Millisecond - s.InspectTakes })
	case 23:
		w.Do(func(s *plegtest.State) { s.Late = !s.Late })
	case 24, 25: // a worker reads the pod
		go p.work(ctx, uid)
	case 26:
		p.cache.ForgetUntil(uid, p.cache.Now())
	case 27:
		p.g.Relist()
	case 28, 29, 30:
		p.take()
	case 31:
		for p.take() {
		}
	}
}

// streamStep does one thing to the event stream.
func (p *player) streamStep(what int) {
	delays := func(f func() []time.Duration) { p.w.Do(func(s *plegtest.State) { s.Stream.Delays = f }) }
	switch what {
	case 0, 1:
		p.w.BreakStream(nil)
	case 2:
		p.w.BreakStream(runtime.ErrUnavailable)
	case 3:
		p.w.Do(func(s *plegtest.State) { s.Stream.Refuses = nil })
	case 4:
		p.w.Do(func(s *plegtest.State) { s.Stream.Silent = !s.Stream.Silent })
	case 5:
		p.w.Do(func(s *plegtest.State) { s.Stream.Unnamed = !s.Stream.Unnamed })
	case 6:
		p.w.Do(func(s *plegtest.State) { s.Stream.Unannounced = !s.Stream.Unannounced })
	case 7, 8: // a new listener receives old hints about pods that exist and that do not
		p.w.Do(func(s *plegtest.State) {
			for i := range 8 {
				s.Stream.Backlog = append(s.Stream.Backlog,
					runtime.Hint{Pod: plegtest.Ref(types.UID(fmt.Sprint("p", i))), ID: "old"},
					runtime.Hint{ID: "older"})
			}
		})
	case 9: // hints about nothing, or what is not true
		p.w.Do(func(s *plegtest.State) {
			for i := range p.made {
				s.Stream.Hint(runtime.Hint{Pod: plegtest.Ref("p1"), ID: fmt.Sprint("c", i), Event: runtime.HintStopped})
			}
			s.Stream.Hint(runtime.Hint{Pod: plegtest.Ref("p0")}, runtime.Hint{Pod: plegtest.Ref("never")},
				runtime.Hint{ID: "never"}, runtime.Hint{})
		})
	case 10, 11:
		delays(nil)
	case 12: // some are dropped
		delays(func() []time.Duration { return make([]time.Duration, p.random.IntN(2)) })
	case 13: // all are doubled
		delays(func() []time.Duration { return make([]time.Duration, 2) })
	case 14: // they overtake each other
		delays(func() []time.Duration { return []time.Duration{time.Duration(p.random.IntN(100)) * time.Millisecond} })
	case 15: // all at once
		delays(func() []time.Duration {
			var delays []time.Duration
			for range p.random.IntN(4) {
				delays = append(delays, time.Duration(p.random.IntN(2000))*time.Millisecond)
			}
			return delays
		})
	}
}

// work reads the pod as a worker does that has changed it.
func (p *player) work(ctx context.Context, uid types.UID) {
	ctx, cancel := context.WithTimeout(context.WithValue(ctx, foreign{}, true), 3*time.Second)
	defer cancel()
	_, _ = p.cache.Newer(ctx, plegtest.Ref(uid), p.cache.Now())
}

// make makes a container, in a sandbox that is made if need be.
func (p *player) make(uid types.UID, state runtime.ContainerState) (id string) {
	p.w.Do(func(s *plegtest.State) {
		p.made++
		pod := s.Pods[uid]
		if pod == nil {
			pod = &runtime.Pod{PodRef: plegtest.Ref(uid),
				Sandboxes: []runtime.Sandbox{{ID: fmt.Sprint("s", p.made), State: runtime.SandboxReady}}}
		}
		pod = plegtest.Clone(pod)
		id = fmt.Sprint("c", p.made)
		pod.Containers = slices.Insert(pod.Containers, 0,
			runtime.Container{ID: runtime.ContainerID{Type: "test", ID: id}, Name: "n-" + id, State: state})
		s.Pods[uid] = pod
	})
	return id
}

// advance lets a container that has not exited exit, or turn to another state.
func (p *player) advance(uid types.UID, to runtime.ContainerState, oldest bool) {
	p.w.Do(func(s *plegtest.State) {
		pod := s.Pods[uid]
		if pod == nil {
			return
		}
		pod = plegtest.Clone(pod)
		s.Pods[uid] = pod
		for i := range pod.Containers {
			c := &pod.Containers[i]
			if oldest {
				c = &pod.Containers[len(pod.Containers)-1-i]
			}
			switch {
			case c.State == runtime.ContainerExited:
				continue
			case c.State == runtime.ContainerUnknown && to == runtime.ContainerUnknown,
				c.State == runtime.ContainerCreated:
				c.State = runtime.ContainerRunning
			default:
				c.State = to
			}
			return
		}
	})
}

// take reads one item, if there is one, and checks what is promised of it.
func (p *player) take() bool {
	synctest.Wait()
	var item pleg.PodEvents
	select {
	case item = <-p.g.Watch():
	default:
		return false
	}
	if len(item.Events) == 0 {
		p.fail("pod %s without events", item.Pod)
	}
	seen := map[pleg.Event]bool{}
	status, known := p.cache.Get(item.Pod.UID)
	for _, e := range item.Events {
		e.Name = ""
		if seen[e] {
			p.fail("%v twice in one item", e)
		}
		seen[e] = true
		if e.Type == pleg.ContainerDied {
			p.died[e.ContainerID.ID] = true
		}
		if !known {
			continue
		}
		c := status.ByID(e.ContainerID)
		switch {
		case e.Type == pleg.ContainerDied && c != nil && c.State != runtime.ContainerExited,
			e.Type == pleg.ContainerRemoved && c != nil,
			e.Type == pleg.ContainerStarted && c != nil && c.State == runtime.ContainerCreated:
			p.fail("the cache is older than %v: %s", e, plegtest.Format(status))
		}
	}
	if known {
		p.views[item.Pod.UID] = plegtest.Format(status)
	} else {
		p.read(item.Pod.UID)
	}
	return true
}

// read lets the reader ask for what the cache does not have.
func (p *player) read(uid types.UID) {
	ctx, cancel := context.WithTimeout(context.WithValue(context.Background(), foreign{}, true), time.Second)
	defer cancel()
	status, err := p.cache.Newer(ctx, plegtest.Ref(uid), 0)
	p.views[uid] = plegtest.Format(status)
	if err != nil {
		p.views[uid] = unread
	}
}

// unread is the view of a pod that the reader has to ask for again.
const unread = "?"

// status returns the truth about a pod.
func (p *player) status(uid types.UID) (status *runtime.PodStatus) {
	p.w.Do(func(s *plegtest.State) { status = s.Status(plegtest.Ref(uid)) })
	return status
}

// count adds what the pod has.
func count(c *pleg.Counts, pod *runtime.Pod) {
	for i := range pod.Containers {
		switch pod.Containers[i].State {
		case runtime.ContainerCreated:
			c.Created++
		case runtime.ContainerRunning:
			c.Running++
		case runtime.ContainerExited:
			c.Exited++
		default:
			c.Unknown++
		}
	}
	if slices.ContainsFunc(pod.Sandboxes, func(s runtime.Sandbox) bool { return s.State == runtime.SandboxReady }) {
		c.Pods++
	}
}

// uids returns the UIDs of all pods that a script can name: those which it makes, and
// those which only hints are about.
func (p *player) uids() []types.UID {
	uids := []types.UID{"never"}
	for i := range 8 {
		uids = append(uids, types.UID(fmt.Sprint("p", i)))
	}
	return uids
}

// settle ends all faults of the runtime, but not those of its event stream, lets
// generator and reader catch up, with one relist if there are events, and compares.
func (p *player) settle() {
	p.w.Do(func(s *plegtest.State) {
		clear(s.Broken)
		clear(s.Hung)
		s.ListErr, s.ListTakes, s.InspectTakes = nil, 0, 0
	})
	if p.evented {
		time.Sleep(4 * time.Second) // until all has happened and workers have read what they read
		p.g.Relist()
	}
	for range 12 {
		time.Sleep(time.Second)
		for p.take() {
		}
	}
	for uid, got := range p.views {
		if got == unread {
			p.read(uid)
		}
	}
	for i := range 4 {
		uid := types.UID(fmt.Sprint("p", i))
		truth := plegtest.Format(p.status(uid))
		if status, known := p.cache.Get(uid); known && plegtest.Format(status) != truth {
			p.fail("pod %s: the cache knows %q, the truth is %q", uid, plegtest.Format(status), truth)
		}
	}
	var there pleg.Counts
	pods := 0
	p.w.Do(func(s *plegtest.State) {
		pods = len(s.Pods)
		for _, pod := range s.Pods {
			count(&there, pod)
			truth := plegtest.Format(s.Status(pod.PodRef))
			if got := p.views[pod.UID]; got != truth {
				p.fail("pod %s: the reader knows %q, the truth is %q", pod.PodRef, got, truth)
			}
			delete(p.views, pod.UID)
		}
	})
	for uid, got := range p.views {
		if got != "" {
			p.fail("pod %s is gone, the reader knows %q", uid, got)
		}
	}
	for id, uid := range p.alive {
		c := p.status(uid).ByID(runtime.ContainerID{Type: "test", ID: id})
		if c == nil || c.State == runtime.ContainerExited {
			p.mustDie[id] = true
		}
	}
	for id := range p.mustDie {
		if !p.died[id] {
			p.fail("the end of %s was not reported", id)
		}
	}
	if have := pleg.Remembered(p.g); have != pods {
		p.fail("%d states of %d pods", have, pods)
	}
	if counts := p.metrics.now().counts; len(counts) == 0 || last(counts) != there {
		p.fail("counted %+v, there are %+v", counts, there)
	}
	have := 0
	for _, uid := range p.uids() {
		if _, known := p.cache.Get(uid); known {
			have++
		}
	}
	if have > pods {
		p.fail("%d cached statuses of %d pods", have, pods)
	}
	if err := p.g.Healthy(); err != nil {
		p.fail("not healthy in the end: %w", err)
	}
}

func TestReadersEndUpWithTheTruth(t *testing.T) {
	for _, evented := range []bool{false, true} {
		t.Run(fmt.Sprint("evented=", evented), rapid.MakeCheck(func(rt *rapid.T) {
			script := rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(rt, "script")
			if err := play(t, evented, script); err != nil {
				rt.Fatal(err)
			}
		}))
	}
}

func FuzzReadersEndUpWithTheTruth(f *testing.F)        { fuzz(f, false) }
func FuzzEventedReadersEndUpWithTheTruth(f *testing.F) { fuzz(f, true) }

func fuzz(f *testing.F, evented bool) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		script := make([]byte, 300)
		for i := range script {
			script[i] = byte(random.Uint32())
		}
		f.Add(script)
	}
	f.Fuzz(func(t *testing.T, script []byte) {
		require.NoError(t, play(t, evented, script[:min(len(script), 1000)]))
	})
}
