package unittest_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/kubeletkit/kubeletkit/agenttest"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// TestACrashLoop follows a container that exits with code 1 after a second each time: the pauses between its restarts
// double up to 5 minutes. An hour takes some milliseconds.
func TestACrashLoop(t *testing.T) {
	agenttest.Run(t, agenttest.Options{}, func(t *testing.T, n *agenttest.Node) {
		n.Runtime.Script(fake.Target{Pod: "pod-0"}, fake.Exits(time.Second, 1))
		n.Source.Set(fake.Pods(1, 1)...)
		n.Sleep(time.Hour)
		st := n.Pods()[0].Status.ContainerStatuses[0]
		assert.EqualValues(t, 16, st.RestartCount)
		assert.Equal(t, "CrashLoopBackOff", st.State.Waiting.Reason)
		assert.EqualValues(t, 1, st.LastTerminationState.Terminated.ExitCode)
	})
}
