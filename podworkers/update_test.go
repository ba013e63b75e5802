package podworkers

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

func TestEffectiveGrace(t *testing.T) {
	n := func(v int64) *int64 { return &v }
	for name, tc := range map[string]struct {
		current        int64
		deletion, spec *int64
		asked          *int64
		want           int64
	}{
		"the spec's":                           {spec: n(40), want: 40},
		"the API's default":                    {want: 30},
		"never 0":                              {spec: n(0), want: 1},
		"a kill's, longer than the spec's":     {spec: n(5), asked: n(60), want: 60},
		"the deletion's":                       {spec: n(40), deletion: n(10), want: 10},
		"the shorter of deletion and kill":     {deletion: n(10), asked: n(20), want: 10},
		"a forced deletion before a long kill": {deletion: n(0), asked: n(20), want: 1},
		"negative":                             {asked: n(-1), want: 1},
		"it shrinks":                           {current: 20, asked: n(5), want: 5},
		"it does not grow":                     {current: 5, spec: n(40), deletion: n(40), asked: n(20), want: 5},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &v1.Pod{}
			pod.DeletionGracePeriodSeconds, pod.Spec.TerminationGracePeriodSeconds = tc.deletion, tc.spec
			assert.Equal(t, tc.want, effectiveGracePeriod(tc.current, pod, tc.asked))
		})
	}
}

func TestUpdateValidate(t *testing.T) {
	pod := apiPod("u", "p")
	for name, tc := range map[string]struct {
		u    Update
		want string // "" means valid
	}{
		"create":           {u: Update{Type: Create, Pod: pod}},
		"orphan":           {u: Update{Type: Kill, Orphan: orphan("u", "p")}},
		"no type":          {u: Update{Pod: pod}, want: "unknown type"},
		"no pod":           {u: Update{Type: Kill}, want: "without a pod"},
		"no UID":           {u: Update{Type: Create, Pod: apiPod("", "p")}, want: "without a UID"},
		"orphan, not kill": {u: Update{Type: Sync, Orphan: orphan("u", "p")}, want: "can only be killed"},
		"kill options":     {u: Update{Type: Sync, Pod: pod, Kill: &KillOptions{}}, want: "options for a kill"},
		"mirror":           {u: Update{Type: Create, Pod: testpod.With(pod, testpod.Annotation(podspec.AnnotationConfigMirror, "x"))}, want: "mirror pod"},
	} {
		t.Run(name, func(t *testing.T) {
			err := tc.u.validate()
			if tc.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.want)
		})
	}
}

func TestSkipRule(t *testing.T) {
	dead := &runtime.PodStatus{Containers: []runtime.ContainerStatus{
		{Container: runtime.Container{State: runtime.ContainerExited}}}}
	alive := &runtime.PodStatus{
		Sandboxes: []runtime.SandboxStatus{{Sandbox: runtime.Sandbox{State: runtime.SandboxReady}}}}
	for rule, want := range map[skipRule][3]bool{
		neverSkip:      {false, false, false},
		skipIfAbsent:   {true, false, false},
		skipIfNoneRuns: {true, true, false},
	} {
		assert.Equal(t, want, [3]bool{rule.applies(&runtime.PodStatus{}), rule.applies(dead), rule.applies(alive)},
			"rule %d", rule)
	}
}

func TestStateAnswers(t *testing.T) {
	at := time.Unix(1, 0)
	for name, tc := range map[string]struct {
		s                               State
		terminated, couldRun, requested bool
	}{
		"unknown, not synced":  {s: State{}, couldRun: true},
		"unknown, synced":      {s: State{Synced: true}},
		"syncing":              {s: State{Phase: PhaseSync, Synced: true}, couldRun: true},
		"being cancelled":      {s: State{Phase: PhaseSync, TerminatingAt: at}, couldRun: true, requested: true},
		"terminating":          {s: State{Phase: PhaseTerminating, TerminatingAt: at}, couldRun: true, requested: true},
		"terminating, evicted": {s: State{Phase: PhaseTerminating, TerminatingAt: at, Evicted: true}, couldRun: true, requested: true},
		"terminated":           {s: State{Phase: PhaseTerminated, TerminatingAt: at}, terminated: true, requested: true},
		"terminated, deleted":  {s: State{Phase: PhaseTerminated, TerminatingAt: at, Deleted: true}, terminated: true, requested: true},
		"finished":             {s: State{Phase: PhaseTerminated, TerminatingAt: at, Finished: true}, terminated: true, requested: true},
		"another one waits":    {s: State{Phase: PhaseTerminated, TerminatingAt: at, Deleted: true, RestartRequested: true}, terminated: true, requested: true},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tc.terminated, tc.s.Terminated(), "Terminated")
			assert.Equal(t, tc.couldRun, tc.s.CouldHaveRunningContainers(), "CouldHaveRunningContainers")
			assert.Equal(t, tc.requested, tc.s.TerminationRequested(), "TerminationRequested")
		})
	}
}
