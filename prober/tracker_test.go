package prober

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/kubeletkit/kubeletkit/runtime"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func instance(id string, state runtime.ContainerState, started time.Time) *runtime.ContainerStatus {
	return &runtime.ContainerStatus{
		Container: runtime.Container{ID: runtime.ContainerID{Type: "fake", ID: id}, Name: "app", State: state},
		StartedAt: started,
	}
}

func TestTrackerObserve(t *testing.T) {
	run := instance("1", runtime.ContainerRunning, noon)
	for _, tc := range []struct {
		name   string
		kind   runtime.ProbeKind
		probe  v1.Probe
		settle bool
		view   observation
		want   time.Duration // after noon; -1: none
	}{
		{name: "no instance", kind: runtime.LivenessProbe, view: observation{}, want: -1},
		{name: "created", kind: runtime.LivenessProbe, view: observation{instance: instance("1", runtime.ContainerCreated, time.Time{}), started: true}, want: -1},
		{name: "exited", kind: runtime.LivenessProbe, view: observation{instance: instance("1", runtime.ContainerExited, noon), started: true}, want: -1},
		{name: "at once", kind: runtime.LivenessProbe, view: observation{instance: run, started: true}, want: 0},
		{name: "seen late", kind: runtime.LivenessProbe, view: observation{instance: run, started: true, now: noon.Add(7 * time.Second)}, want: 7 * time.Second},
		{name: "delay", kind: runtime.LivenessProbe, probe: v1.Probe{InitialDelaySeconds: 5}, view: observation{instance: run, started: true, now: noon.Add(2 * time.Second)}, want: 5 * time.Second},
		{name: "delay is over", kind: runtime.LivenessProbe, probe: v1.Probe{InitialDelaySeconds: 5}, view: observation{instance: run, started: true, now: noon.Add(8 * time.Second)}, want: 8 * time.Second},
		{name: "runtime's clock is ahead", kind: runtime.LivenessProbe, probe: v1.Probe{InitialDelaySeconds: 5}, view: observation{instance: instance("1", runtime.ContainerRunning, noon.Add(time.Hour)), started: true}, want: 5 * time.Second},
		{name: "jitter", kind: runtime.LivenessProbe, probe: v1.Probe{PeriodSeconds: 20}, view: observation{instance: run, started: true, jitter: 0.25}, want: 5 * time.Second},
		{name: "liveness waits for startup", kind: runtime.LivenessProbe, view: observation{instance: run}, want: -1},
		{name: "readiness waits for startup", kind: runtime.ReadinessProbe, view: observation{instance: run}, want: -1},
		{name: "startup", kind: runtime.StartupProbe, view: observation{instance: run}, want: 0},
		{name: "startup is over", kind: runtime.StartupProbe, view: observation{instance: run, started: true}, want: -1},
		{name: "settled", kind: runtime.LivenessProbe, settle: true, view: observation{instance: run, started: true}, want: -1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := tracker{kind: tc.kind, settings: settingsOf(&tc.probe), id: run.ID, settled: tc.settle}
			if tc.view.now.IsZero() {
				tc.view.now = noon
			}
			due, ok := c.observe(tc.view)
			if tc.want < 0 {
				assert.False(t, ok)
				return
			}
			assert.True(t, ok)
			assert.Equal(t, noon.Add(tc.want), due)
		})
	}
}

func TestTrackerBeginsAnewWithANewInstance(t *testing.T) {
	c := tracker{kind: runtime.LivenessProbe,
		settings: settingsOf(&v1.Probe{FailureThreshold: 1, InitialDelaySeconds: 3})}
	c.observe(observation{instance: instance("1", runtime.ContainerRunning, noon), started: true, now: noon})
	c.begin(noon.Add(3 * time.Second))
	verdict, ok := c.record(false)
	assert.True(t, ok && !verdict)
	_, ok = c.observe(observation{instance: instance("1", runtime.ContainerRunning, noon), started: true,
		now: noon.Add(time.Hour)})
	assert.False(t, ok, "an unhealthy instance is not probed again")

	again := noon.Add(2 * time.Hour)
	due, ok := c.observe(observation{instance: instance("2", runtime.ContainerRunning, again),
		started: true, now: again})
	assert.True(t, ok)
	assert.Equal(t, again.Add(3*time.Second), due)
}

func TestTrackerRecord(t *testing.T) {
	const none = "-"
	for _, tc := range []struct {
		name     string
		kind     runtime.ProbeKind
		probe    v1.Probe
		outcomes string // of attempts: s succeeds, f fails
		want     string // verdict of each: s, f or - for none
		settled  bool
	}{
		{"API's defaults", runtime.ReadinessProbe, v1.Probe{}, "fffs", "--fs", false},
		{"success threshold", runtime.ReadinessProbe, v1.Probe{SuccessThreshold: 2, FailureThreshold: 1}, "sfsss", "-f-ss", false},
		{"runs are broken", runtime.LivenessProbe, v1.Probe{FailureThreshold: 3}, "ffsffsfff", "--s--s--f", true},
		{"liveness goes on while it succeeds", runtime.LivenessProbe, v1.Probe{}, "ss", "ss", false},
		{"startup succeeds once", runtime.StartupProbe, v1.Probe{FailureThreshold: 5}, "ffffs", "----s", true},
		{"startup fails for good", runtime.StartupProbe, v1.Probe{FailureThreshold: 2}, "ff", "-f", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := tracker{kind: tc.kind, settings: settingsOf(&tc.probe)}
			got := ""
			for _, o := range tc.outcomes {
				switch verdict, ok := c.record(o == 's'); {
				case !ok:
					got += none
				case verdict:
					got += "s"
				default:
					got += "f"
				}
			}
			assert.Equal(t, tc.want, got)
			assert.Equal(t, tc.settled, c.settled)
		})
	}
}

// A verdict is what threshold outcomes in a row say, and never anything else.
func TestTrackerRecordIsTheRunOfOutcomes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := v1.Probe{SuccessThreshold: rapid.Int32Range(1, 4).Draw(t, "success"), FailureThreshold: rapid.Int32Range(1,
			4).Draw(t, "failure")}
		outcomes := rapid.SliceOfN(rapid.Bool(), 1, 30).Draw(t, "outcomes")
		c := tracker{kind: runtime.ReadinessProbe, settings: settingsOf(&p)}
		for i, o := range outcomes {
			run := 1
			for j := i - 1; j >= 0 && outcomes[j] == o; j-- {
				run++
			}
			want := run >= int(p.FailureThreshold)
			if o {
				want = run >= int(p.SuccessThreshold)
			}
			verdict, ok := c.record(o)
			if ok != want || ok && verdict != o {
				t.Fatalf("attempt %d of %v: verdict %v, %v", i, outcomes, verdict, ok)
			}
		}
	})
}
