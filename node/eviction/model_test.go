package eviction_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/kubeletkit/kubeletkit/node/eviction"
)

// world is a node with random pods. All memory is that of pods, or of the system.
type world struct {
	capacity, system int64
	pods             map[string]*worldPod
	made             int
	now              time.Time
	rules            eviction.Rules
	state            eviction.State
	result           *eviction.Result
	// victim is the name of the last victim as long as another one must wait for it, and until when that is.
	victim      string
	victimUntil time.Time
	// below is since when each threshold is below its value in each reading.
	below []time.Time
	// low means that the threshold was met for its grace period, and that its minimum reclaim was not reached since.
	low []bool
}

type worldPod struct {
	pod eviction.Pod
	// ends is when an end under way is complete; zero: there is none.
	ends time.Time
	// fixed pods must not be evicted.
	fixed bool
}

func (p *worldPod) memory() int64 { return *p.pod.Usage.Memory }

func (w *world) free() int64 {
	n := w.capacity - w.system
	for _, p := range w.pods {
		n -= p.memory()
	}
	return n
}

// list returns the pods as a measurement has them.
func (w *world) list() []eviction.Pod {
	out := []eviction.Pod{}
	for _, p := range w.pods {
		m := p.memory()
		q := p.pod
		q.Usage.Memory, q.Ending = &m, !p.ends.IsZero()
		out = append(out, q)
	}
	return out
}

// pass lets time pass.
func (w *world) pass(d time.Duration) {
	w.now = w.now.Add(d)
	for name, p := range w.pods {
		if !p.ends.IsZero() && !p.ends.After(w.now) {
			delete(w.pods, name)
		}
	}
}

func (w *world) need(i int, reclaiming bool) int64 {
	t := w.rules.Thresholds[i]
	n := t.Value.Of(w.capacity)
	if reclaiming {
		n = min(n+t.MinReclaim.Of(w.capacity), w.capacity)
	}
	return n
}

// read reads the signal, or fails to.
func (w *world) read(fails bool) eviction.Readings {
	for i, t := range w.rules.Thresholds {
		if fails || w.free() >= w.need(i, w.low[i]) {
			w.below[i], w.low[i] = time.Time{}, false
			continue
		}
		if w.below[i].IsZero() {
			w.below[i] = w.now
		}
		w.low[i] = w.low[i] || w.now.Sub(w.below[i]) >= t.GracePeriod
	}
	if fails {
		return nil
	}
	return eviction.Readings{eviction.MemoryAvailable: {Available: w.free(), Capacity: w.capacity, At: w.now}}
}

// step reads, decides and acts.
func (w *world) step(t *rapid.T, fails bool, grow int64) eviction.Decision {
	w.pass(time.Millisecond)
	in := eviction.Input{Now: w.now, Readings: w.read(fails), Result: w.result}
	_, alive := w.pods[w.victim]
	in.VictimEnded = w.victim != "" && !alive
	w.result = nil
	var d eviction.Decision
	before := w.state
	w.state, d = eviction.Decide(before, w.rules, in)
	if _, again := eviction.Decide(before, w.rules, in); again.Action != d.Action || again.Next != d.Next {
		t.Fatalf("the decision has changed its input: %+v, then %+v", d, again)
	}
	if d.Next < 0 {
		t.Fatalf("Next %s", d.Next)
	}
	if w.victim != "" && (!alive || !w.now.Before(w.victimUntil)) {
		w.victim = ""
	}
	switch d.Action {
	case eviction.Measure:
		w.result = &eviction.Result{Condition: d.Condition, At: w.now, Pods: w.list()}
	case eviction.Evict:
		w.evict(t, d, in, grow)
	}
	return d
}

// evict asserts that the eviction is needed, and carries it out.
func (w *world) evict(t *rapid.T, d eviction.Decision, in eviction.Input, ends int64) {
	name := d.Victim.Pod.Name
	if in.Result == nil {
		t.Fatal("evicted without a measurement")
	}
	i := slices.Index(w.low, true)
	if i < 0 {
		t.Fatalf("evicted %s, but no threshold is met: free %d, thresholds %v", name, w.free(), w.rules.Thresholds)
	}
	if d.Threshold.String() != w.rules.Thresholds[i].String() {
		t.Fatalf("evicted for %s, want %s", d.Threshold, w.rules.Thresholds[i])
	}
	if w.victim != "" && w.now.Before(w.victimUntil) {
		t.Fatalf("evicted %s while %s ends", name, w.victim)
	}
	if !in.Readings[eviction.MemoryAvailable].At.After(in.Result.At) {
		t.Fatal("evicted without a reading after the measurement")
	}
	// The ranking, by another way.
	key := func(p *eviction.Pod) string {
		over := *p.Usage.Memory - p.Pod.Spec.Containers[0].Resources.Requests.Memory().Value()
		exceeds := 1
		if over > 0 {
			exceeds = 0
		}
		return fmt.Sprintf("%d %010d %020d", exceeds, *p.Pod.Spec.Priority+1000, (1<<60)-over)
	}
	// The usage of a pod counts if it is a thousandth of what is missing. Of the pods that may be evicted, one whose
	// usage counts comes first.
	least := (w.need(i, true) - in.Readings[eviction.MemoryAvailable].Available) / 1000
	counts := *d.Victim.Usage.Memory >= least
	best := key(d.Victim)
	for j := range in.Result.Pods {
		p := &in.Result.Pods[j]
		wp := w.pods[p.Pod.Name]
		if p.Pod.Name == name && (wp == nil && p.Ending || wp != nil && wp.fixed || p.Ending || *p.Usage.Memory == 0) {
			t.Fatalf("%s must not be evicted", name)
		}
		if wp == nil || wp.fixed || p.Ending || *p.Usage.Memory == 0 {
			continue
		}
		if other := *p.Usage.Memory >= least; other && !counts || other == counts && key(p) < best {
			t.Fatalf("evicted %s, but %s comes before it", name, p.Pod.Name)
		}
	}
	end := max(10*time.Second, time.Duration(d.GracePeriod)*3*time.Second/2)
	w.victim, w.victimUntil = name, w.now.Add(end+30*time.Second)
	if p := w.pods[name]; p != nil && p.ends.IsZero() {
		p.ends = w.now.Add(time.Duration(ends) * time.Second)
	}
}

// TestModel asserts in random worlds that no pod is evicted without need, never two where one is enough, never one out
// of order, and that a node gets out of need as long as there are pods to evict.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		number := func(name string, lo, hi int64) int64 { return rapid.Int64Range(lo, hi).Draw(t, name) }
		const unit = 10_000 // so that a pod can use less than a thousandth of what is missing
		w := &world{capacity: 400 * unit, pods: map[string]*worldPod{}, now: time.Now()}
		c := eviction.Config{Hard: map[string]string{"memory.available": fmt.Sprint(unit * number("hard", 1, 300))}}
		if rapid.Bool().Draw(t, "soft") {
			c.Soft = map[string]string{"memory.available": fmt.Sprint(unit * number("softvalue", 1, 400))}
			c.SoftGracePeriod = map[string]string{"memory.available": fmt.Sprint(number("grace", 1, 20)) + "s"}
		}
		if rapid.Bool().Draw(t, "reclaim") {
			c.MinimumReclaim = map[string]string{"memory.available": fmt.Sprint(unit * number("reclaimed", 0, 200))}
		}
		thresholds, err := eviction.Parse(c)
		if err != nil {
			t.Fatal(err)
		}
		w.rules = eviction.Rules{Thresholds: thresholds, PressureTransitionPeriod: 30 * time.Second,
			MaxPodGracePeriod: number("max grace", 0, 60)}
		w.below, w.low = make([]time.Time, len(thresholds)), make([]bool, len(thresholds))
		add := func() {
			w.made++
			name := fmt.Sprintf("pod-%d", w.made)
			prio := int32(number("priority", 0, 2))
			fixed := number("fixed", 0, 5) == 0
			if fixed {
				prio = 2_000_000_000
			}
			p := pod(name, prio, fmt.Sprint(unit*number("request", 0, 200)), "0")
			usage := unit * number("usage", 0, 250)
			if number("little", 0, 3) == 0 {
				usage /= unit
			}
			w.pods[name] = &worldPod{pod: eviction.Pod{Pod: p, Usage: eviction.Usage{Memory: &usage}}, fixed: fixed}
		}
		for range number("pods", 0, 8) + 2 {
			add()
		}
		some := func() *worldPod {
			var names []string
			for name := range w.pods {
				names = append(names, name)
			}
			slices.Sort(names)
			if len(names) == 0 {
				return nil
			}
			return w.pods[rapid.SampledFrom(names).Draw(t, "pod")]
		}
		t.Repeat(map[string]func(*rapid.T){
			"add": func(*rapid.T) {
				if len(w.pods) < 10 {
					add()
				}
			},
			"use": func(*rapid.T) {
				if p := some(); p != nil {
					p.pod.Usage.Memory = new(max(0, p.memory()+unit*number("more", -200, 200)))
				}
			},
			"delete": func(*rapid.T) {
				if p := some(); p != nil && p.ends.IsZero() {
					p.ends = w.now.Add(time.Duration(number("end", 0, 40)) * time.Second)
				}
			},
			"system": func(*rapid.T) { w.system = unit * number("system use", 0, 300) },
			"pass":   func(*rapid.T) { w.pass(time.Duration(number("ms", 1, 15000)) * time.Millisecond) },
			"restart": func(*rapid.T) {
				w.state, w.result, w.victim = eviction.State{}, nil, ""
				clear(w.below)
				clear(w.low)
			},
			"step": func(t *rapid.T) { w.step(t, false, number("end", 0, 60)) },
			"steps": func(t *rapid.T) {
				for range 4 {
					w.step(t, false, number("end", 0, 60))
				}
			},
			"fail": func(t *rapid.T) { w.step(t, true, 0) },
			"":     func(t *rapid.T) {},
		})
		// The node gets out of need.
		for range 2000 {
			d := w.step(t, false, 3)
			wait := 50 * time.Millisecond
			if d.Action == eviction.Nothing && d.Next > 0 || d.Action == eviction.Wait {
				wait = min(max(d.Next, wait), time.Second)
			}
			w.pass(wait)
		}
		if w.free() < w.need(0, false) {
			for name, p := range w.pods {
				if !p.fixed && p.ends.IsZero() && p.memory() > 0 {
					t.Fatalf("%s could be evicted, free %d, need %d", name, w.free(), w.need(0, false))
				}
			}
		}
	})
}
