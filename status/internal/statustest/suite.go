// Package statustest tests implementations of [status.Manager].
//
//	func TestConformance(t *testing.T) {
//		statustest.Suite(t, statustest.Factory{New: func(t *testing.T, opts status.Options) status.Manager {
//			m, err := mine.New(opts.Sink, opts.MayRun)
//			require.NoError(t, err)
//			return m
//		}})
//	}
//
// All tests run in virtual time.
package statustest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/bubble"
	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/status"
	"github.com/kubeletkit/kubeletkit/status/fake"
)

// patience is the time after which a manager must have done what is due. It is
// longer than any sensible deadline or back-off.
const patience = time.Hour

// errBroken is what a sink returns that is not available.
var errBroken = errors.New("the sink is not available")

// Factory makes status managers.
type Factory struct {
	// New returns a manager without pods. Of the options only Sink and MayRun may be
	// set. New is called in the bubble of the test ([synctest.Test]); goroutines that
	// it starts must end when Run returns.
	New func(t *testing.T, opts status.Options) status.Manager
	// KeepsOnly means that the manager ignores the sink. Tests that need one are skipped.
	KeepsOnly bool
}

// Suite runs all tests, each as a subtest.
func Suite(t *testing.T, f Factory) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if c.delivers && f.KeepsOnly {
				t.Skip("the manager delivers no statuses")
			}
			bubble.Test(t, func(t *testing.T) { run(t, &f, c) })
		})
	}
}

// testCase is one test of the suite.
type testCase struct {
	name string
	// delivers means that the test needs a manager with a sink.
	delivers bool
	test     func(e *env)
}

var cases = []testCase{
	{"Unknown", false, testUnknown},
	{"KeepsTheLatest", false, testKeepsTheLatest},
	{"CopiesStatuses", false, testCopiesStatuses},
	{"PhaseDoesNotGoBack", false, testPhaseDoesNotGoBack},
	{"Terminate", false, testTerminate},
	{"Pods", false, testPods},
	{"EndedContainerStaysEnded", true, testEndedContainerStaysEnded},
	{"ForgetAndPrune", false, testForgetAndPrune},
	{"RunOnce", false, testRunOnce},

	{"DeliversTheLatest", true, testDeliversTheLatest},
	{"DeliversChangesOnly", true, testDeliversChangesOnly},
	{"DeliversWhatWasSetBeforeRun", true, testDeliversWhatWasSetBeforeRun},
	{"DeliversTermination", true, testDeliversTermination},
	{"OneDeliveryPerPod", true, testOneDeliveryPerPod},
	{"PodsSideBySide", true, testPodsSideBySide},
	{"RepeatsFailures", true, testRepeatsFailures},
	{"ErrGone", true, testErrGone},
	{"DeliversAgain", true, testDeliversAgain},
	{"Refused", true, testRefused},
	{"Hang", true, testHang},
	{"HoldsBackFinalPhase", true, testHoldsBackFinalPhase},
	{"Recheck", true, testRecheck},
	{"DeliversForgotten", true, testDeliversForgotten},
	{"RunJoins", true, testRunJoins},

	{"End", true, testEnd},
	{"EndOfUnknownPod", true, testEndOfUnknownPod},
	{"EndIsRepeated", true, testEndIsRepeated},
	{"EndBeforeNextPod", true, testEndBeforeNextPod},
}

// env is what a test works with: a manager that runs beside a sink.
type env struct {
	*testing.T
	f      *Factory
	sink   *fake.Sink
	m      status.Manager
	cancel func()
	// ran has the result of Run.
	ran chan error
	// running has the pods for which MayRun returns true. Change it while the manager
	// is idle.
	running map[types.UID]bool
}

// run runs the test.
func run(t *testing.T, f *Factory, c testCase) {
	e := &env{T: t, f: f, sink: fake.NewSink(), ran: make(chan error, 1), running: map[types.UID]bool{}}
	e.m = f.New(t, status.Options{Sink: e.sink, MayRun: func(uid types.UID) bool { return e.running[uid] }})
	var ctx context.Context
	ctx, e.cancel = context.WithCancel(t.Context())
	go func() { e.ran <- e.m.Run(ctx) }()
	synctest.Wait()
	c.test(e)
	e.cancel()
	require.NoError(e, <-e.ran)
	assert.Zero(e, e.sink.Overlaps(), "two calls of the sink for one pod at once")
}

// settle waits until the manager has done what is due.
func (e *env) settle() {
	time.Sleep(patience)
	synctest.Wait()
}

// calls returns the calls of the sink for the pod as "<phase> <message>", or "gone
// <phase> <message>", with "!" in front of those that failed.
func (e *env) calls(uid types.UID) []string {
	var out []string
	for _, d := range e.sink.Calls(uid) {
		text := fmt.Sprintf("%s %s", d.Status.Phase, d.Status.Message)
		if d.Gone {
			text = "gone " + text
		}
		if d.Err != nil {
			text = "!" + text
		}
		out = append(out, text)
	}
	return out
}

// accepted is calls without those that failed.
func (e *env) accepted(uid types.UID) []string {
	var out []string
	for _, c := range e.calls(uid) {
		if c[0] != '!' {
			out = append(out, c)
		}
	}
	return out
}

// get returns the status of a pod that must have one.
func (e *env) get(uid types.UID) v1.PodStatus {
	s, ok := e.m.Get(uid)
	require.True(e, ok, "pod %s has no status", uid)
	return s
}

// pod returns a pod with that UID.
func pod(uid types.UID) *v1.Pod {
	return testpod.New(string(uid), testpod.UID(uid), testpod.Containers("app"),
		testpod.Restart(v1.RestartPolicyAlways))
}

// phase returns a status.
func phase(p v1.PodPhase, message string) v1.PodStatus {
	return v1.PodStatus{Phase: p, Message: message}
}
