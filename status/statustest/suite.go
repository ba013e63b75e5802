// Package statustest tests implementations of [status.StatusManager].
//
//	func TestConformance(t *testing.T) {
//		statustest.Suite(t, statustest.Factory{New: func(t *testing.T, opts status.Options) status.StatusManager {
//			m, err := mine.New(opts.Sink, opts.MayRun)
//			require.NoError(t, err)
//			return m
//		}})
//	}
//
// Tests of optional interfaces are skipped for a manager that does not have them.
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

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/runtime"
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
	New func(t *testing.T, opts status.Options) status.StatusManager
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
			missing := ""
			synctest.Test(t, func(t *testing.T) { missing = run(t, &f, c) })
			if missing != "" {
				t.Skipf("the manager does not implement %s", missing)
			}
		})
	}
}

// testCase is one test of the suite.
type testCase struct {
	name string
	// delivers means that the test needs a manager with a sink.
	delivers bool
	test     func(e *env)
	// missing returns the name of the optional interface that the manager lacks for the
	// test, or "". nil: none is needed.
	missing func(m status.StatusManager) string
}

var cases = []testCase{
	{"Unknown", false, testUnknown, nil},
	{"KeepsTheLatest", false, testKeepsTheLatest, nil},
	{"CopiesStatuses", false, testCopiesStatuses, nil},
	{"PhaseDoesNotGoBack", false, testPhaseDoesNotGoBack, nil},
	{"Terminate", false, testTerminate, nil},
	{"ForgetAndPrune", false, testForgetAndPrune, nil},
	{"RunOnce", false, testRunOnce, nil},

	{"DeliversTheLatest", true, testDeliversTheLatest, nil},
	{"DeliversChangesOnly", true, testDeliversChangesOnly, nil},
	{"DeliversWhatWasSetBeforeRun", true, testDeliversWhatWasSetBeforeRun, nil},
	{"DeliversTermination", true, testDeliversTermination, nil},
	{"OneDeliveryPerPod", true, testOneDeliveryPerPod, nil},
	{"PodsSideBySide", true, testPodsSideBySide, nil},
	{"RepeatsFailures", true, testRepeatsFailures, nil},
	{"ErrGone", true, testErrGone, nil},
	{"Hang", true, testHang, nil},
	{"HoldsBackFinalPhase", true, testHoldsBackFinalPhase, nil},
	{"Recheck", true, testRecheck, needRecheck},
	{"DeliversForgotten", true, testDeliversForgotten, nil},
	{"RunJoins", true, testRunJoins, nil},

	{"End", true, testEnd, needEnds},
	{"EndOfUnknownPod", true, testEndOfUnknownPod, needEnds},
	{"EndIsRepeated", true, testEndIsRepeated, needEnds},
	{"EndBeforeNextPod", true, testEndBeforeNextPod, needEnds},
}

func needRecheck(m status.StatusManager) string { return lacks[status.Rechecker](m, "Rechecker") }
func needEnds(m status.StatusManager) string    { return lacks[status.EndReporter](m, "EndReporter") }

func lacks[T any](m status.StatusManager, name string) string {
	if _, ok := runtime.Optional[T](m); ok {
		return ""
	}
	return name
}

// env is what a test works with: a manager that runs beside a sink.
type env struct {
	*testing.T
	f      *Factory
	sink   *fake.Sink
	m      status.StatusManager
	cancel func()
	// ran has the result of Run.
	ran chan error
	// running has the pods for which MayRun returns true. Change it while the manager
	// is idle.
	running map[types.UID]bool
}

// run runs the test, or returns what is missing for it.
func run(t *testing.T, f *Factory, c testCase) (missing string) {
	e := &env{T: t, f: f, sink: fake.NewSink(), ran: make(chan error, 1), running: map[types.UID]bool{}}
	e.m = f.New(t, status.Options{Sink: e.sink, MayRun: func(uid types.UID) bool { return e.running[uid] }})
	if c.missing != nil {
		if missing = c.missing(e.m); missing != "" {
			return missing
		}
	}
	var ctx context.Context
	ctx, e.cancel = context.WithCancel(t.Context())
	go func() { e.ran <- e.m.Run(ctx) }()
	synctest.Wait()
	c.test(e)
	e.cancel()
	require.NoError(e, <-e.ran)
	assert.Zero(e, e.sink.Overlaps(), "two calls of the sink for one pod at once")
	return ""
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
	return testpod.New(string(uid), testpod.UID(uid), testpod.Containers("app"), testpod.Restart(v1.RestartPolicyAlways))
}

// phase returns a status.
func phase(p v1.PodPhase, message string) v1.PodStatus {
	return v1.PodStatus{Phase: p, Message: message}
}

// optional returns the optional interface of the manager, which testCase.missing has
// looked for.
func optional[T any](e *env) T {
	found, ok := runtime.Optional[T](e.m)
	require.True(e, ok)
	return found
}
