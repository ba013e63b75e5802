package pleg

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

	"github.com/kubeletkit/kubeletkit/runtime"
)

// The scripts of this file play a runtime whose pods change at any moment, while
// calls are slow, fail and hang, workers read the cache, and a reader takes
// events now and then. It keeps what the events say against what was to be seen.

// play runs a script, in which each byte is a step, and returns what went wrong.
func play(t *testing.T, evented bool, script []byte) (err error) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		p := &player{
			w: w, cache: runtime.NewCache(w, runtime.CacheOptions{}), evented: evented,
			died: map[string]bool{}, mustDie: map[string]bool{},
			alive: map[string]types.UID{}, views: map[types.UID]string{},
			random: rand.New(rand.NewPCG(1, 2)),
		}
		w.afterLists = func(pods []*runtime.Pod) {
			for _, pod := range pods {
				p.saw(pod)
			}
		}
		w.afterReads = func(ctx context.Context, status *runtime.PodStatus) {
			if ctx.Value(foreign{}) == nil {
				p.saw(listing(status))
			}
		}
		opts := Options{MaxInspections: 2, InspectTimeout: 5 * time.Second}
		p.g = NewGeneric(w, p.cache, opts).engine
		if evented {
			p.g = NewEvented(w, p.cache, EventedOptions{Options: opts, SafetyPeriod: 20 * time.Second}).engine
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
	w       *world
	cache   *runtime.Cache
	g       *engine
	evented bool
	made    int
	random  *rand.Rand
	err     error
	// died are the containers whose end was reported, mustDie those that the generator
	// saw exited, in a list or a status; alive those that it saw in another state, with
	// their pods.
	died, mustDie map[string]bool
	alive         map[string]types.UID
	// views are what the reader knows of the pods: what the cache said when the
	// reader took events of a pod.
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

// saw notes what the generator is shown. The world is locked.
func (p *player) saw(pod *runtime.Pod) {
	for _, c := range pod.Containers {
		if c.State == runtime.ContainerExited {
			p.mustDie[c.ID.ID] = true
		} else {
			p.alive[c.ID.ID] = pod.UID
		}
	}
}

// step does one thing: the low bits say what, the high bits to which pod.
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
		w.do(func() {
			if pod := w.pods[uid]; pod != nil {
				pod = clone(pod)
				pod.Containers = slices.DeleteFunc(pod.Containers, func(c runtime.Container) bool { return c.State == runtime.ContainerExited })
				w.pods[uid] = pod
			}
		})
	case 13: // all is gone
		w.do(func() { delete(w.pods, uid) })
	case 14: // a container is there just long enough for a worker to read it
		id := p.make(uid, runtime.ContainerRunning)
		go func() {
			p.work(ctx, uid)
			w.do(func() {
				if pod := w.pods[uid]; pod != nil {
					pod = clone(pod)
					pod.Containers = slices.DeleteFunc(pod.Containers, func(c runtime.Container) bool { return c.ID.ID == id })
					w.pods[uid] = pod
				}
			})
		}()
	case 15, 16: // the sandbox dies
		w.do(func() {
			if pod := w.pods[uid]; pod != nil {
				pod = clone(pod)
				pod.Sandboxes[0].State = runtime.SandboxNotReady
				w.pods[uid] = pod
			}
		})
	case 17, 18:
		w.do(func() { w.broken[uid] = !w.broken[uid] })
	case 19:
		w.do(func() { w.hung[uid] = !w.hung[uid] })
	case 20:
		w.do(func() {
			if w.listErr == nil {
				w.listErr = errInjected
			} else {
				w.listErr = nil
			}
		})
	case 21:
		w.do(func() { w.listTakes = 200*time.Millisecond - w.listTakes })
	case 22:
		w.do(func() { w.statusTakes = 150*time.Millisecond - w.statusTakes })
	case 23:
		w.do(func() { w.late = !w.late })
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
	ev := &p.w.events
	fate := func(f func() []time.Duration) { p.w.do(func() { ev.fate = f }) }
	switch what {
	case 0, 1:
		p.w.breakStream(nil)
	case 2:
		p.w.breakStream(runtime.ErrUnavailable)
	case 3:
		p.w.do(func() { ev.refuses = nil })
	case 4:
		p.w.do(func() { ev.deaf = !ev.deaf })
	case 5:
		p.w.do(func() { ev.bare = !ev.bare })
	case 6:
		p.w.do(func() { ev.announces = !ev.announces })
	case 7, 8: // a new listener is told old things of pods that are and that are not
		p.w.do(func() {
			for i := range 8 {
				ev.backlog = append(ev.backlog, runtime.Hint{Pod: refOf(types.UID(fmt.Sprint("p", i))), ID: "old"}, runtime.Hint{ID: "older"})
			}
		})
	case 9: // hints about nothing, or what is not true
		p.w.do(func() {
			if ev.ear != nil {
				for i := range p.made {
					ev.ear.hear(runtime.Hint{Pod: refOf("p1"), ID: fmt.Sprint("c", i), Event: runtime.HintStopped})
				}
				ev.ear.hear(runtime.Hint{Pod: refOf("p0")}, runtime.Hint{Pod: refOf("never")}, runtime.Hint{ID: "never"}, runtime.Hint{})
			}
		})
	case 10, 11:
		fate(nil)
	case 12: // some are dropped
		fate(func() []time.Duration { return make([]time.Duration, p.random.IntN(2)) })
	case 13: // all are doubled
		fate(func() []time.Duration { return make([]time.Duration, 2) })
	case 14: // they overtake each other
		fate(func() []time.Duration { return []time.Duration{time.Duration(p.random.IntN(100)) * time.Millisecond} })
	case 15: // all at once
		fate(func() []time.Duration {
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
	_, _ = p.cache.Newer(ctx, refOf(uid), p.cache.Now())
}

// make makes a container, in a sandbox that is made if need be.
func (p *player) make(uid types.UID, state runtime.ContainerState) (id string) {
	p.w.do(func() {
		p.made++
		pod := p.w.pods[uid]
		if pod == nil {
			pod = &runtime.Pod{PodRef: refOf(uid), Sandboxes: []runtime.Sandbox{sbx(fmt.Sprint("s", p.made), "ready")}}
		}
		pod = clone(pod)
		id = fmt.Sprint("c", p.made)
		pod.Containers = slices.Insert(pod.Containers, 0, ctr(id, state))
		p.w.pods[uid] = pod
	})
	return id
}

// advance lets a container that has not exited exit, or turn to another state.
func (p *player) advance(uid types.UID, to runtime.ContainerState, oldest bool) {
	p.w.do(func() {
		pod := p.w.pods[uid]
		if pod == nil {
			return
		}
		pod = clone(pod)
		p.w.pods[uid] = pod
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
	var item PodEvents
	select {
	case item = <-p.g.Watch():
	default:
		return false
	}
	if len(item.Events) == 0 {
		p.fail("pod %s without events", item.Pod)
	}
	seen := map[Event]bool{}
	status, known := p.cache.Get(item.Pod.UID)
	for _, e := range item.Events {
		e.Name = ""
		if seen[e] {
			p.fail("%v twice in one item", e)
		}
		seen[e] = true
		if e.Type == ContainerDied {
			p.died[e.ContainerID.ID] = true
		}
		if !known {
			continue
		}
		c := status.ByID(e.ContainerID)
		switch {
		case e.Type == ContainerDied && c != nil && c.State != runtime.ContainerExited,
			e.Type == ContainerRemoved && c != nil,
			e.Type == ContainerStarted && c != nil && c.State == runtime.ContainerCreated:
			p.fail("the cache is older than %v: %s", e, view(status))
		}
	}
	if known {
		p.views[item.Pod.UID] = view(status)
	} else {
		p.read(item.Pod.UID)
	}
	return true
}

// read lets the reader ask for what the cache does not have.
func (p *player) read(uid types.UID) {
	ctx, cancel := context.WithTimeout(context.WithValue(context.Background(), foreign{}, true), time.Second)
	defer cancel()
	status, err := p.cache.Newer(ctx, refOf(uid), 0)
	p.views[uid] = view(status)
	if err != nil {
		p.views[uid] = unread
	}
}

// unread is the view of a pod that the reader has to ask for again.
const unread = "?"

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
	p.w.do(func() {
		clear(p.w.broken)
		clear(p.w.hung)
		p.w.listErr, p.w.listTakes, p.w.statusTakes = nil, 0, 0
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
		truth := view(p.w.status(refOf(uid)))
		if status, known := p.cache.Get(uid); known && view(status) != truth {
			p.fail("pod %s: the cache knows %q, the truth is %q", uid, view(status), truth)
		}
	}
	var there Counts
	for _, pod := range p.w.snapshot() {
		there.add(pod, 1)
		truth := view(p.w.status(pod.PodRef))
		if got := p.views[pod.UID]; got != truth {
			p.fail("pod %s: the reader knows %q, the truth is %q", pod.PodRef, got, truth)
		}
		delete(p.views, pod.UID)
	}
	for uid, got := range p.views {
		if got != "" {
			p.fail("pod %s is gone, the reader knows %q", uid, got)
		}
	}
	for id, uid := range p.alive {
		c := p.w.status(refOf(uid)).ByID(runtime.ContainerID{Type: "test", ID: id})
		if c == nil || c.State == runtime.ContainerExited {
			p.mustDie[id] = true
		}
	}
	for id := range p.mustDie {
		if !p.died[id] {
			p.fail("the end of %s was not reported", id)
		}
	}
	if have, want := len(p.g.records.pods), len(p.w.pods); have != want {
		p.fail("%d records of %d pods", have, want)
	}
	if p.g.records.counts != there {
		p.fail("counted %+v, there are %+v", p.g.records.counts, there)
	}
	have := 0
	for _, uid := range p.uids() {
		if _, known := p.cache.Get(uid); known {
			have++
		}
	}
	if most := len(p.w.pods); have > most {
		p.fail("%d cached statuses of %d pods", have, most)
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
