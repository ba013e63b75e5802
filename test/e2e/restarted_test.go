package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestRestarted(t *testing.T) {
	running := v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: metav1.Now()}}
	waiting := v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "ContainerCreating"}}
	ended := func(id, reason string, code int32, started time.Time) v1.ContainerState {
		return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
			ContainerID: id, Reason: reason, ExitCode: code, StartedAt: metav1.NewTime(started),
			FinishedAt: metav1.Now(),
		}}
	}
	cutOff := ended("a", "StartError", 128, time.Unix(0, 0))
	none := v1.ContainerState{}
	status := func(id string, restarts int32, state, last v1.ContainerState) v1.ContainerStatus {
		return v1.ContainerStatus{ContainerID: id, RestartCount: restarts, State: state, LastTerminationState: last}
	}
	for name, test := range map[string]struct {
		was, is v1.ContainerStatus
		want    bool
	}{
		"nothing":           {status("a", 0, running, none), status("a", 0, running, none), false},
		"the first start":   {status("", 0, waiting, none), status("a", 0, running, none), false},
		"no status before":  {v1.ContainerStatus{}, status("a", 0, running, none), false},
		"a restart":         {status("a", 0, running, none), status("b", 1, running, ended("a", "Error", 1, time.Now())), true},
		"another container": {status("a", 0, running, none), status("b", 0, running, none), true},

		"cut off, as reported before":     {status("a", 0, cutOff, none), status("b", 1, running, cutOff), false},
		"the cut is reported":             {status("", 0, waiting, none), status("a", 0, cutOff, none), false},
		"cut off, not reported":           {status("", 0, waiting, none), status("b", 1, running, cutOff), false},
		"cut off, no status before":       {v1.ContainerStatus{}, status("b", 1, running, cutOff), false},
		"cut off, created before":         {status("a", 0, waiting, none), status("b", 1, running, cutOff), false},
		"cut off, the next waits":         {status("", 0, waiting, none), status("b", 1, waiting, cutOff), false},
		"no time at all":                  {status("", 0, waiting, none), status("b", 1, running, ended("a", "StartError", 128, time.Time{})), false},
		"the words of an older runtime":   {status("", 0, waiting, none), status("b", 1, running, ended("a", "ContainerCannotRun", 128, time.Time{})), false},
		"another one was cut off":         {status("x", 0, waiting, none), status("b", 1, running, cutOff), true},
		"it ran before":                   {status("a", 0, running, none), status("b", 1, running, cutOff), true},
		"it had ended before":             {status("a", 0, ended("a", "Error", 1, time.Now()), none), status("b", 1, running, cutOff), true},
		"it was restarted before":         {status("x", 1, waiting, none), status("b", 2, running, cutOff), true},
		"it had run once":                 {status("", 0, waiting, ended("x", "Error", 1, time.Now())), status("b", 1, running, cutOff), true},
		"two restarts":                    {status("", 0, waiting, none), status("b", 2, running, cutOff), true},
		"it ran for a moment":             {status("", 0, waiting, none), status("b", 1, running, ended("a", "Error", 128, time.Now())), true},
		"it ran, whatever the reason is":  {status("", 0, waiting, none), status("b", 1, running, ended("a", "StartError", 128, time.Now())), true},
		"it ended by itself":              {status("", 0, waiting, none), status("b", 1, running, ended("a", "StartError", 1, time.Time{})), true},
		"a cut that is reported, and ran": {status("a", 0, ended("a", "StartError", 128, time.Now()), none), status("b", 1, running, none), true},
	} {
		assert.Equal(t, test.want, restarted(&test.was, &test.is), name)
	}
}
