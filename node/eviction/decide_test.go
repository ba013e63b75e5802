package eviction_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeletkit/kubeletkit/node/eviction"
)

const mi = int64(1 << 20)

// rig calls Decide as a node does.
type rig struct {
	t     *testing.T
	rules eviction.Rules
	state eviction.State
	now   time.Time
	// available has amounts of signals, of a capacity of 1000 Mi.
	available map[eviction.Signal]int64
	pods      []eviction.Pod
	// result is that of the last decision, for the next one.
	result *eviction.Result
	ended  bool
}

func newRig(t *testing.T, c eviction.Config) *rig {
	thresholds, err := eviction.Parse(c)
	require.NoError(t, err)
	return &rig{
		t: t, now: time.Now(), available: map[eviction.Signal]int64{},
		rules: eviction.Rules{Thresholds: thresholds, PressureTransitionPeriod: 5 * time.Minute, MaxPodGracePeriod: 60},
	}
}

// decide lets 10 ms pass, reads and decides.
func (r *rig) decide() eviction.Decision {
	r.t.Helper()
	r.now = r.now.Add(10 * time.Millisecond)
	in := eviction.Input{Now: r.now, Readings: eviction.Readings{}, Result: r.result, VictimEnded: r.ended}
	for s, n := range r.available {
		in.Readings[s] = eviction.Reading{Available: n, Capacity: 1000 * mi, At: r.now}
	}
	r.result, r.ended = nil, false
	var d eviction.Decision
	r.state, d = eviction.Decide(r.state, r.rules, in)
	switch d.Action {
	case eviction.Reclaim:
		r.result = &eviction.Result{Condition: d.Condition, At: r.now.Add(time.Millisecond)}
	case eviction.Measure:
		r.result = &eviction.Result{Condition: d.Condition, At: r.now.Add(time.Millisecond), Pods: r.pods}
	}
	return d
}

// want asserts the actions of the next decisions, and returns the last one.
func (r *rig) want(actions ...eviction.Action) (d eviction.Decision) {
	r.t.Helper()
	for i, a := range actions {
		d = r.decide()
		require.Equalf(r.t, a, d.Action, "decision %d", i)
	}
	return d
}

func using(p *v1.Pod, memory int64) eviction.Pod {
	return eviction.Pod{Pod: p, Usage: eviction.Usage{Memory: &memory,
		Containers: []eviction.ContainerUsage{{Name: "c", Memory: &memory}}}}
}

var memoryHard = eviction.Config{Hard: map[string]string{"memory.available": "100Mi"}}

func TestHardThreshold(t *testing.T) {
	r := newRig(t, memoryHard)
	r.pods = []eviction.Pod{using(pod("small", 0, "0", "0"), 10*mi), using(pod("hog", 0, "0", "0"), 500*mi)}
	r.available[eviction.MemoryAvailable] = 100 * mi
	assert.Empty(t, r.want(eviction.Nothing).Conditions, "a threshold is met below its value")

	r.available[eviction.MemoryAvailable] = 90 * mi
	d := r.want(eviction.Measure, eviction.Evict)
	assert.Equal(t, "hog", d.Victim.Pod.Name)
	assert.EqualValues(t, 1, d.GracePeriod)
	assert.Equal(t, []v1.NodeConditionType{v1.NodeMemoryPressure}, d.Conditions)
	assert.Equal(t, "The node was low on resource: memory. Threshold quantity: 100Mi, available: 90Mi. Container c "+
		"was using 500Mi, request is 0, has larger consumption of memory. ", d.Message)
	assert.Equal(t, map[string]string{"starved_resource": "memory", "offending_containers": "c",
		"offending_containers_usage": "500Mi"}, d.Annotations)

	d = r.want(eviction.Wait, eviction.Wait)
	assert.InDelta(t, 40*time.Second, d.Next, float64(time.Second))
	r.ended, r.available[eviction.MemoryAvailable] = true, 590*mi
	d = r.want(eviction.Nothing)
	require.NotNil(t, d.Outcome)
	assert.True(t, d.Outcome.Ended)
	assert.Equal(t, 500*mi, d.Outcome.Freed())
	assert.Equal(t, []v1.NodeConditionType{v1.NodeMemoryPressure}, d.Conditions)
	r.now = r.now.Add(5*time.Minute - time.Second)
	assert.Len(t, r.want(eviction.Nothing).Conditions, 1)
	r.now = r.now.Add(time.Second)
	assert.Empty(t, r.want(eviction.Nothing).Conditions)
}

func TestNoEvictionWithoutASecondReading(t *testing.T) {
	r := newRig(t, memoryHard)
	r.pods = []eviction.Pod{using(pod("hog", 0, "0", "0"), 500*mi)}
	r.available[eviction.MemoryAvailable] = 90 * mi
	r.want(eviction.Measure)
	r.available[eviction.MemoryAvailable] = 100 * mi // it was a moment
	r.want(eviction.Nothing)
	r.available[eviction.MemoryAvailable] = 90 * mi
	r.want(eviction.Measure)
	delete(r.available, eviction.MemoryAvailable) // it cannot be read
	r.want(eviction.Nothing)
	r.available[eviction.MemoryAvailable] = 90 * mi
	r.want(eviction.Measure)
	r.result.At = r.now.Add(time.Minute) // the reading is older than the usage
	r.want(eviction.Measure, eviction.Evict)
}

func TestSoftThreshold(t *testing.T) {
	r := newRig(t, eviction.Config{
		Soft: map[string]string{"memory.available": "200Mi"}, SoftGracePeriod: map[string]string{
			"memory.available": "1m"}, Hard: memoryHard.Hard,
		MinimumReclaim: map[string]string{"memory.available": "300Mi"},
	})
	hog := pod("hog", 0, "0", "0")
	hog.Spec.TerminationGracePeriodSeconds = new(int64(20))
	r.pods = []eviction.Pod{using(hog, 500*mi)}
	r.available[eviction.MemoryAvailable] = 150 * mi
	d := r.want(eviction.Nothing)
	assert.Equal(t, time.Minute, d.Next)
	assert.Len(t, d.Conditions, 1, "the condition has no grace period")
	r.now = r.now.Add(50 * time.Second)
	r.want(eviction.Nothing)
	r.available[eviction.MemoryAvailable] = 200 * mi
	r.want(eviction.Nothing)
	r.available[eviction.MemoryAvailable] = 150 * mi
	r.want(eviction.Nothing)
	r.now = r.now.Add(59 * time.Second)
	r.want(eviction.Nothing)
	r.now = r.now.Add(time.Second)
	d = r.want(eviction.Measure, eviction.Evict)
	assert.EqualValues(t, 20, d.GracePeriod)
	assert.Equal(t, "memory.available<200Mi", d.Threshold.String())

	// The minimum reclaim is not reached: another pod ends, without a grace period of the threshold.
	other := pod("other", 0, "0", "0")
	r.pods = []eviction.Pod{using(other, 10*mi)}
	r.ended, r.available[eviction.MemoryAvailable] = true, 499*mi
	d = r.want(eviction.Measure, eviction.Evict)
	assert.Equal(t, "other", d.Victim.Pod.Name)
	assert.EqualValues(t, 60, d.GracePeriod, "the pod has none of its own")
	r.ended, r.available[eviction.MemoryAvailable] = true, 500*mi
	r.want(eviction.Nothing)

	// Below the hard threshold it is the one that counts.
	r.available[eviction.MemoryAvailable] = 99 * mi
	assert.EqualValues(t, 1, r.want(eviction.Measure, eviction.Evict).GracePeriod)
}

func TestDisk(t *testing.T) {
	r := newRig(t, eviction.Config{Hard: map[string]string{"nodefs.available": "10%", "imagefs.available": "15%"}})
	filler := eviction.Pod{Pod: pod("filler", 0, "0", "0"), Usage: eviction.Usage{
		Volumes: bytes(300 * mi), Logs: bytes(mi), Containers: []eviction.ContainerUsage{{Name: "c", Disk: new(mi)}},
	}}
	r.pods = []eviction.Pod{filler}
	r.available = map[eviction.Signal]int64{eviction.NodeFsAvailable: 500 * mi, eviction.ImageFsAvailable: 140 * mi}
	d := r.want(eviction.Reclaim)
	assert.True(t, d.DeadContainers && d.UnusedImages)
	assert.Equal(t, []v1.NodeConditionType{v1.NodeDiskPressure}, d.Conditions)
	r.available[eviction.ImageFsAvailable] = 151 * mi
	r.want(eviction.Nothing) // images were enough

	r.available[eviction.ImageFsAvailable] = 149 * mi
	d = r.want(eviction.Reclaim, eviction.Measure, eviction.Evict)
	assert.Equal(t, "The node was low on resource: ephemeral-storage. Threshold quantity: 157286406, available: "+
		"149Mi. Container c was using 1Mi, request is 0, has larger consumption of ephemeral-storage. ", d.Message)
	r.ended = true
	r.pods = nil
	d = r.want(eviction.Reclaim) // of what the victim has left behind
	require.NotNil(t, d.Outcome)
	d = r.want(eviction.Measure, eviction.Nothing)
	assert.True(t, d.NoVictim)
	assert.Equal(t, 10*time.Second, d.Next)

	r = newRig(t, eviction.Config{Hard: map[string]string{"nodefs.available": "10%", "imagefs.available": "15%"}})
	r.rules.Layout = eviction.ImageDisk
	r.available = map[eviction.Signal]int64{eviction.NodeFsAvailable: 50 * mi, eviction.ImageFsAvailable: 540 * mi}
	r.want(eviction.Measure) // images are elsewhere
}

func TestOneResourceDoesNotBlockOthers(t *testing.T) {
	r := newRig(t, eviction.Config{Hard: map[string]string{"memory.available": "100Mi", "pid.available": "10"}})
	r.available = map[eviction.Signal]int64{eviction.MemoryAvailable: 1, eviction.PIDAvailable: 5}
	p := eviction.Pod{Pod: pod("forks", 0, "0", "0"), Usage: eviction.Usage{Processes: new(int64(1000)),
		Memory: new(int64(0))}}
	r.pods = []eviction.Pod{p}
	var d eviction.Decision
	for range 10 {
		if d = r.decide(); d.Action == eviction.Evict {
			break
		}
	}
	require.Equal(t, eviction.Evict, d.Action)
	assert.Equal(t, v1.NodePIDPressure, d.Condition)
	assert.Equal(t, "The node was low on resource: pids. Threshold quantity: 10, available: 5. ", d.Message)
}

func TestEndsUnderWayAreEnough(t *testing.T) {
	r := newRig(t, memoryHard)
	leaving := using(pod("leaving", 0, "0", "0"), 50*mi)
	leaving.Ending = true
	r.pods = []eviction.Pod{leaving, using(pod("stays", 0, "0", "0"), 500*mi)}
	r.available[eviction.MemoryAvailable] = 60 * mi
	r.want(eviction.Measure, eviction.Wait)
	r.available[eviction.MemoryAvailable] = 49 * mi // its end is not enough any more
	r.now = r.now.Add(time.Second)
	r.want(eviction.Measure, eviction.Evict)

	r = newRig(t, memoryHard)
	r.pods = []eviction.Pod{leaving, using(pod("stays", 0, "0", "0"), 500*mi)}
	r.available[eviction.MemoryAvailable] = 60 * mi
	began := r.now
	for r.decide().Action != eviction.Evict { // it does not end
		r.now = r.now.Add(100 * time.Millisecond)
	}
	assert.InDelta(t, 11*time.Second, r.now.Sub(began), float64(2*time.Second))
}

func TestAVictimThatDoesNotEnd(t *testing.T) {
	r := newRig(t, memoryHard)
	stuck := using(pod("stuck", 0, "0", "0"), 500*mi)
	r.pods = []eviction.Pod{stuck, using(pod("next", 0, "0", "0"), 100*mi)}
	r.available[eviction.MemoryAvailable] = 60 * mi
	r.want(eviction.Measure, eviction.Evict, eviction.Wait)
	r.now = r.now.Add(41 * time.Second)
	r.pods[0].Ending = true
	d := r.want(eviction.Measure)
	assert.False(t, d.Outcome.Ended)
	// What it would free is waited for once more, and then the next one has to go.
	for d.Action != eviction.Evict {
		d = r.decide()
		r.now = r.now.Add(100 * time.Millisecond)
	}
	assert.Equal(t, "next", d.Victim.Pod.Name)
}

// A pod that uses less than a thousandth of what is missing is evicted only when no other one can be.
func TestPodsThatFreeLittle(t *testing.T) {
	r := newRig(t, eviction.Config{Hard: map[string]string{"memory.available": "500Mi"}})
	r.available[eviction.MemoryAvailable] = 100 * mi
	r.pods = []eviction.Pod{using(pod("nothing", 0, "0", "0"), 0)}
	assert.True(t, r.want(eviction.Measure, eviction.Nothing).NoVictim)

	next := func() string {
		r.now = r.now.Add(10 * time.Second)
		d := r.want(eviction.Measure, eviction.Evict)
		r.state = eviction.State{}
		return d.Victim.Pod.Name
	}
	tiny, least := using(pod("tiny", 0, "0", "0"), 400<<10), using(pod("least", 0, "0", "0"), 300<<10)
	small, unknown := using(pod("small", 100, "0", "0"), mi), eviction.Pod{Pod: pod("unknown", 0, "0", "0")}
	r.pods = append(r.pods, least, tiny, unknown, small)
	assert.Equal(t, "small", next(), "of a higher priority")
	r.pods = r.pods[:4]
	assert.Equal(t, "unknown", next())
	r.pods = r.pods[:3]
	assert.Equal(t, "tiny", next(), "the first one by rank")
	r.pods = r.pods[:2]
	assert.Equal(t, "least", next())
}

func TestGracePeriodOfThePod(t *testing.T) {
	r := newRig(t, eviction.Config{Soft: map[string]string{"memory.available": "500Mi"},
		SoftGracePeriod: map[string]string{"memory.available": "1s"}})
	r.rules.MaxPodGracePeriod = -1
	r.available[eviction.MemoryAvailable] = 100 * mi
	r.pods = []eviction.Pod{using(pod("a", 0, "0", "0"), 400*mi)}
	r.want(eviction.Nothing)
	r.now = r.now.Add(time.Second)
	assert.EqualValues(t, 30, r.want(eviction.Measure, eviction.Evict).GracePeriod)
}

func TestNoThresholdsNoAction(t *testing.T) {
	r := newRig(t, eviction.Config{})
	r.available = map[eviction.Signal]int64{eviction.MemoryAvailable: 0}
	d := r.want(eviction.Nothing)
	assert.Zero(t, d.Next)
	assert.Empty(t, d.Conditions)
}

// TestPressureEpisodes asserts that 1,000 episodes of pressure, in which readings come close to a threshold or are
// below it for one reading, evict no pod.
func TestPressureEpisodes(t *testing.T) {
	r := newRig(t, eviction.Config{
		Hard: map[string]string{"memory.available": "100Mi", "nodefs.available": "10%"},
		Soft: map[string]string{"memory.available": "200Mi"}, SoftGracePeriod: map[string]string{
			"memory.available": "30s"},
	})
	r.pods = []eviction.Pod{using(pod("hog", 0, "0", "0"), 500*mi)}
	for episode := range 1000 {
		r.now = r.now.Add(time.Second)
		low := int64(episode % 3)
		r.available[eviction.MemoryAvailable], r.available[eviction.NodeFsAvailable] = (99+low)*mi, (99+low)*mi
		for range 3 { // each reading is woken by the kernel's signal
			d := r.decide()
			require.NotEqual(t, eviction.Evict, d.Action, "episode %d", episode)
			r.available[eviction.MemoryAvailable], r.available[eviction.NodeFsAvailable] = 101*mi, 101*mi
		}
		r.available[eviction.MemoryAvailable], r.available[eviction.NodeFsAvailable] = 800*mi, 800*mi
		r.want(eviction.Nothing)
	}
}

func ExampleDecide() {
	thresholds, _ := eviction.Parse(eviction.Config{Hard: map[string]string{"memory.available": "100Mi"}})
	rules := eviction.Rules{Thresholds: thresholds, PressureTransitionPeriod: 5 * time.Minute}
	now := time.Now()
	read := func(available string) eviction.Input {
		now = now.Add(time.Second)
		q := resource.MustParse(available)
		return eviction.Input{Now: now, Readings: eviction.Readings{eviction.MemoryAvailable: {Available: q.Value(),
			Capacity: 8 << 30, At: now}}}
	}
	var state eviction.State
	state, d := eviction.Decide(state, rules, read("2Gi"))
	fmt.Println(d.Action == eviction.Nothing, d.Conditions)

	state, d = eviction.Decide(state, rules, read("60Mi"))
	fmt.Println(d.Action == eviction.Measure, d.Conditions)

	in := read("50Mi")
	in.Result = &eviction.Result{Condition: d.Condition, At: now.Add(-time.Millisecond),
		Pods: []eviction.Pod{using(pod("web", 0, "64Mi", "0"), 60*mi), using(pod("hog", 0, "64Mi", "0"), 6000*mi)}}
	_, d = eviction.Decide(state, rules, in)
	fmt.Println(d.Action == eviction.Evict, d.Victim.Pod.Name)
	fmt.Println(d.Message)
	// Output:
	// true []
	// true [MemoryPressure]
	// true hog
	// The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. Container c was using 6000Mi, request is 64Mi, has larger consumption of memory.
}
