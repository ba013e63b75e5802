package pleg

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// ctr and sbx make parts of a listed pod.
func ctr(id string, state runtime.ContainerState) runtime.Container {
	return runtime.Container{ID: runtime.ContainerID{Type: "test", ID: id}, Name: "n-" + id, State: state}
}

func sbx(id string, state runtime.SandboxState) runtime.Sandbox {
	return runtime.Sandbox{ID: id, State: state}
}

func podOf(parts ...any) *runtime.Pod {
	pod := &runtime.Pod{PodRef: runtime.PodRef{UID: "u", Namespace: "ns", Name: "p"}}
	for _, part := range parts {
		switch part := part.(type) {
		case runtime.Container:
			pod.Containers = append(pod.Containers, part)
		case runtime.Sandbox:
			pod.Sandboxes = append(pod.Sandboxes, part)
		}
	}
	return pod
}

// words writes events as "Type id".
func words(events []Event) []string {
	out := []string{}
	for _, e := range events {
		out = append(out, fmt.Sprint(e.Type, " ", e.ContainerID.ID, e.SandboxID))
	}
	return out
}

func TestDiff(t *testing.T) {
	const (
		created = runtime.ContainerCreated
		running = runtime.ContainerRunning
		exited  = runtime.ContainerExited
		unknown = runtime.ContainerUnknown
	)
	for _, tc := range []struct {
		name          string
		before, after *runtime.Pod
		want          []string
	}{
		{"never there", nil, nil, []string{}},
		{"same", podOf(sbx("s", "ready"), ctr("a", running)), podOf(sbx("s", "ready"), ctr("a", running)), []string{}},
		{"same in another order", podOf(ctr("a", running), ctr("b", exited), ctr("c", exited)),
			podOf(ctr("c", exited), ctr("a", running), ctr("b", exited)), []string{}},

		{"first seen created", podOf(), podOf(ctr("a", created)), []string{"ContainerChanged a"}},
		{"first seen running", nil, podOf(ctr("a", running)), []string{"ContainerStarted a"}},
		{"first seen exited", nil, podOf(ctr("a", exited)), []string{"ContainerDied a"}},
		{"first seen unknown", nil, podOf(ctr("a", unknown)), []string{"ContainerChanged a"}},

		{"created to running", podOf(ctr("a", created)), podOf(ctr("a", running)), []string{"ContainerStarted a"}},
		{"created to exited", podOf(ctr("a", created)), podOf(ctr("a", exited)), []string{"ContainerDied a"}},
		{"created to gone", podOf(ctr("a", created)), podOf(), []string{"ContainerDied a", "ContainerRemoved a"}},
		{"running to exited", podOf(ctr("a", running)), podOf(ctr("a", exited)), []string{"ContainerDied a"}},
		{"running to unknown", podOf(ctr("a", running)), podOf(ctr("a", unknown)), []string{"ContainerChanged a"}},
		{"running to gone", podOf(ctr("a", running)), podOf(), []string{"ContainerDied a", "ContainerRemoved a"}},
		{"exited to running", podOf(ctr("a", exited)), podOf(ctr("a", running)), []string{"ContainerStarted a"}},
		{"exited to gone", podOf(ctr("a", exited)), podOf(), []string{"ContainerRemoved a"}},
		{"unknown to running", podOf(ctr("a", unknown)), podOf(ctr("a", running)), []string{"ContainerStarted a"}},
		{"unknown to gone", podOf(ctr("a", unknown)), nil, []string{"ContainerDied a", "ContainerRemoved a"}},

		{"restarted between two lists", podOf(ctr("a", running)), podOf(ctr("b", running), ctr("a", exited)),
			[]string{"ContainerStarted b", "ContainerDied a"}},
		{"restarted and the dead one removed", podOf(ctr("a", running)), podOf(ctr("b", running)),
			[]string{"ContainerStarted b", "ContainerDied a", "ContainerRemoved a"}},

		{"sandbox first seen ready", nil, podOf(sbx("s", "ready")), []string{"SandboxStarted s"}},
		{"sandbox first seen dead", nil, podOf(sbx("s", "not-ready")), []string{"SandboxDied s"}},
		{"sandbox dies", podOf(sbx("s", "ready")), podOf(sbx("s", "not-ready")), []string{"SandboxDied s"}},
		{"ready sandbox gone", podOf(sbx("s", "ready")), nil, []string{"SandboxDied s", "SandboxRemoved s"}},
		{"dead sandbox gone", podOf(sbx("s", "not-ready")), nil, []string{"SandboxRemoved s"}},
		{"sandbox made again", podOf(sbx("s", "ready"), ctr("a", running)),
			podOf(sbx("t", "ready"), sbx("s", "not-ready"), ctr("b", running), ctr("a", exited)),
			[]string{"SandboxStarted t", "SandboxDied s", "ContainerStarted b", "ContainerDied a"}},
		{"ids of sandboxes and containers do not mix", podOf(sbx("x", "ready")), podOf(ctr("x", running)),
			[]string{"SandboxDied x", "SandboxRemoved x", "ContainerStarted x"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			assert.Equal(t, tc.want, words(diff(tc.before, tc.after)))
		})
	}
}

func TestDiffTellsNames(t *testing.T) {
	assert.Equal(t,
		[]Event{
			{Type: SandboxStarted, SandboxID: "s"},
			{Type: ContainerStarted, ContainerID: runtime.ContainerID{Type: "test", ID: "a"}, Name: "n-a"},
		},
		diff(nil, podOf(sbx("s", "ready"), ctr("a", runtime.ContainerRunning))))
}

func TestDiffOfSameAllocatesNothing(t *testing.T) {
	a := podOf(sbx("s", "ready"), ctr("a", "running"), ctr("b", "exited"))
	b := podOf(sbx("s", "ready"), ctr("a", "running"), ctr("b", "exited"))
	assert.Zero(t, testing.AllocsPerRun(100, func() { diff(a, b) }))
}

// TestDiffAgainstMaps compares diff with
// the plain definition over maps.
func TestDiffAgainstMaps(t *testing.T) {
	states := []runtime.ContainerState{runtime.ContainerCreated, runtime.ContainerRunning, runtime.ContainerExited, runtime.ContainerUnknown}
	pods := rapid.Custom(func(t *rapid.T) *runtime.Pod {
		ids := rapid.SliceOfDistinct(rapid.IntRange(0, 9), rapid.ID[int]).Draw(t, "ids")
		pod := podOf()
		for _, id := range ids {
			pod.Containers = append(pod.Containers, ctr(fmt.Sprint(id), rapid.SampledFrom(states).Draw(t, "state")))
		}
		return pod
	})
	byID := func(p *runtime.Pod) map[string]runtime.ContainerState {
		m := map[string]runtime.ContainerState{}
		for _, c := range p.Containers {
			m[c.ID.ID] = c.State
		}
		return m
	}
	rapid.Check(t, func(t *rapid.T) {
		before, after := pods.Draw(t, "before"), pods.Draw(t, "after")
		was, is := byID(before), byID(after)
		want := []string{}
		for id, state := range is {
			if was[id] == state {
				continue
			}
			switch state {
			case runtime.ContainerRunning:
				want = append(want, "ContainerStarted "+id)
			case runtime.ContainerExited:
				want = append(want, "ContainerDied "+id)
			default:
				want = append(want, "ContainerChanged "+id)
			}
		}
		for id, state := range was {
			if is[id] != "" {
				continue
			}
			if state != runtime.ContainerExited {
				want = append(want, "ContainerDied "+id)
			}
			want = append(want, "ContainerRemoved "+id)
		}
		got := words(diff(before, after))
		slices.Sort(want)
		slices.Sort(got)
		assert.Equal(t, want, got)
	})
}

func TestMerge(t *testing.T) {
	a := Event{Type: ContainerStarted, ContainerID: runtime.ContainerID{ID: "a"}}
	aDied := Event{Type: ContainerDied, ContainerID: runtime.ContainerID{ID: "a"}}
	b := Event{Type: ContainerStarted, ContainerID: runtime.ContainerID{ID: "b"}}
	s := Event{Type: SandboxDied, SandboxID: "s"}
	assert.Equal(t, []Event{a, b, aDied, s}, merge([]Event{a, b}, []Event{a, aDied, s, b}))
	assert.Equal(t, []Event{a}, merge(nil, []Event{a}))
	assert.Empty(t, merge(nil, nil))
}
