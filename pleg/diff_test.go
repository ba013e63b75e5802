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
	states := []runtime.ContainerState{runtime.ContainerCreated, runtime.ContainerRunning, runtime.ContainerExited,
		runtime.ContainerUnknown}
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
