package e2e

import (
	"testing"

	"github.com/stretchr/testify/assert"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// These tests show that what an agent needs of a runtime is not more than Debian's
// containerd 1.6 has, in particular no event stream.

func TestOldRuntime(t *testing.T) {
	t.Parallel()
	s := newSuiteOn(t, Old, AgentOptions{})
	s.runAll(t, []podTest{
		{"Start", testStart},
		{"RestartPolicies", testRestartPolicies},
		{"Crash", testCrash},
		{"InitOrder", testInitOrder},
		{"Sidecars", testSidecars},
		{"Grace", testGrace},
		{"PreStop", testPreStop},
		{"EditWithUID", testEditWithUID},
		{"RemoveAndReturn", testRemoveAndReturn},
		{"Security", testSecurity},
		{"RecursiveReadOnly", testRecursiveReadOnly},
		{"ImagePolicies", testImagePolicies},
		{"Probes", testProbes},
	})
	testAgentKilledDuringRun(t, s)
	testRuntimeKilled(t, s)
	assert.False(t, s.agent.Exited())
	assert.NotZero(t, s.said(t, eventsNone))
	assert.Zero(t, s.said(t, eventsStand))
	assert.Zero(t, s.said(t, eventsBroken))
}
