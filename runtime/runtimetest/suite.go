package runtimetest

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Subject is a runtime under test, and what the suite has to know of it. Runtime,
// Host, Dir, Image, Sleep and Exit are required; what is nil cannot be tested, and
// its tests are skipped.
type Subject struct {
	Runtime runtime.Runtime
	// Host that pods are started with; its PodLogsDir must be a directory that the
	// runtime can write to.
	Host *runtime.Host
	// Dir is where pods get a directory each.
	Dir string
	// Image that containers are made from, in the form in which a spec names it.
	Image string
	// MissingImage can be named but not be had.
	MissingImage string
	// HostNetwork says that pods can only have the network of the host.
	HostNetwork bool

	// Sleep is a command that runs until it is stopped, and ends soon after SIGTERM,
	// with any code.
	Sleep []string
	// Exit returns a command that ends by itself with the code, after a while; 0
	// means at once.
	Exit func(after time.Duration, code int32) []string
	// Stubborn is a command that goes on after SIGTERM.
	Stubborn []string
	// SaysReady says that Sleep and Stubborn write a line to stdout as soon as they are
	// ready for SIGTERM, which is when tests go on. Otherwise half a second has to do where it
	// matters, and a test may fail on a busy machine.
	SaysReady bool
	// Print returns a command that writes a line with the text to stdout, and ends
	// with code 0.
	Print func(text string) []string

	// ExecPrint and ExecExit return commands that can be run in a container which
	// runs Sleep: one that writes the text to stdout, one that ends with the code.
	ExecPrint func(text string) []string
	ExecExit  func(code int32) []string
	// ExecSleep is one that takes a minute or more.
	ExecSleep []string

	// Restart stops the runtime, calls absent while it is away, and starts it again
	// with all it knew. Containers go on meanwhile. The same Runtime is used after.
	Restart func(absent func()) error
	// LosesExits says that what ends while the runtime is away may be reported with
	// another code than its own; containerd says 255 then.
	LosesExits bool
	// Unannounced says that a stream of events that stands is known to only when the first
	// event has come, as with containerd.
	Unannounced bool
	// Watch calls changed for each pod that changes in the runtime, soon after it does,
	// as far as the runtime's own events tell. It returns nil when ctx ends, and
	// closes ready when it listens. nil: the Runtime's, if it is a [runtime.EventSource].
	Watch func(ctx context.Context, ready chan<- struct{}, changed func(uid types.UID)) error
	// NetworkDown makes the pod network of the runtime fail, or undoes that.
	NetworkDown func(down bool)
}

// Factory makes subjects.
type Factory struct {
	// New returns a subject for one test. It may be one that others use too, at the same
	// time: a test has pods of its own and looks at no others. What is to be closed, New
	// leaves to t.Cleanup.
	New func(t *testing.T) *Subject
	// VirtualTime runs each test in a bubble of testing/synctest. New is called in it, so that
	// what it starts must have ended when the cleanups are through.
	VirtualTime bool
	// Timeout is how long the suite waits for what a runtime is to do at once, as
	// starting a container. Default: 30 s.
	Timeout time.Duration
	// Parallel runs the tests side by side. It does not go with VirtualTime, nor
	// with Restart or NetworkDown where tests share a subject.
	Parallel bool
	// ShortGrace is the grace period given to what does not end by itself. Default:
	// 2 s.
	ShortGrace time.Duration
}

// Suite runs all tests, each as a subtest of its own.
func Suite(t *testing.T, f Factory) {
	if f.Timeout <= 0 {
		f.Timeout = 30 * time.Second
	}
	if f.ShortGrace < time.Second {
		f.ShortGrace = 2 * time.Second
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if f.VirtualTime {
				synctest.Test(t, func(t *testing.T) { run(t, &f, c) })
				return
			}
			if f.Parallel {
				t.Parallel()
			}
			run(t, &f, c)
		})
	}
}

// testCase is one test of the suite.
type testCase struct {
	name string
	// missing returns what the subject lacks for the test, or "".
	missing func(s *Subject) string
	run     func(e *env)
}

func run(t *testing.T, f *Factory, c testCase) {
	s := f.New(t)
	if c.missing != nil {
		if what := c.missing(s); what != "" {
			t.Skipf("the runtime has no %s", what)
		}
	}
	c.run(newEnv(t, f, s))
}

// cases are in the order in which a runtime is best brought up.
var cases = []testCase{
	{"Starts", nil, testStarts},
	{"SyncIsIdempotent", nil, testSyncIsIdempotent},
	{"Unknown", nil, testUnknown},
	{"ExitCodes", nil, testExitCodes},
	{"Kill", nil, testKill},
	{"KillTwice", nil, testKillTwice},
	{"KillWithoutSpec", nil, testKillWithoutSpec},
	{"GracePeriod", needStubborn, testGracePeriod},
	{"GracePeriodZero", needStubborn, testGracePeriodZero},
	{"GracePeriodShortened", needStubborn, testGracePeriodShortened},
	{"Remove", nil, testRemove},
	{"RemoveSandboxOfARunningPod", nil, testRemoveRunningSandbox},
	{"ListStates", nil, testListStates},
	{"InitContainersInOrder", nil, testInitOrder},
	{"FailedInitContainerHoldsBack", nil, testFailedInit},
	{"SidecarsEnclose", nil, testSidecars},
	{"RestartPolicies", nil, testRestartPolicies},
	{"BackOff", nil, testBackOff},
	{"ChangedContainerIsReplacedAlone", nil, testChangedContainer},
	{"SandboxIsMadeAgain", nil, testSandboxAgain},
	{"StaleStatus", nil, testStaleStatus},
	{"MissingImage", needMissingImage, testMissingImage},
	{"OneBadContainer", needMissingImage, testOneBadContainer},
	{"Logs", needPrint, testLogs},
	{"LogsOfEachInstance", needPrint, testLogsOfInstances},
	{"Environment", needPrint, testEnvironment},
	{"Exec", needExec, testExec},
	{"ExecTimeout", needExecSleep, testExecTimeout},
	{"Cancelled", nil, testCancelled},
	{"CancelledKill", needStubborn, testCancelledKill},
	{"ManyPodsAtOnce", nil, testManyPods},
	{"ConcurrentRemoval", nil, testConcurrentRemoval},
	{"ChangesAreSeen", nil, testChangesSeen},
	{"EventsAreHints", needWatch, testEvents},
	{"Restart", needRestart, testRestart},
	{"Check", nil, testCheck},
	{"CheckWithoutNetwork", needNetworkDown, testCheckNetwork},
}

func need(what string, has func(s *Subject) bool) func(s *Subject) string {
	return func(s *Subject) string {
		if has(s) {
			return ""
		}
		return what
	}
}

var (
	needStubborn     = need("stubborn command", func(s *Subject) bool { return s.Stubborn != nil })
	needMissingImage = need("missing image", func(s *Subject) bool { return s.MissingImage != "" })
	needPrint        = need("printing command", func(s *Subject) bool { return s.Print != nil })
	needExec         = need("commands for Exec", func(s *Subject) bool { return s.ExecPrint != nil && s.ExecExit != nil })
	needExecSleep    = need("slow command for Exec", func(s *Subject) bool { return s.ExecSleep != nil })
	needWatch        = need("events", func(s *Subject) bool { _, ok := s.Runtime.(runtime.EventSource); return ok || s.Watch != nil })
	needRestart      = need("way to be restarted", func(s *Subject) bool { return s.Restart != nil })
	needNetworkDown  = need("way to lose its network", func(s *Subject) bool { return s.NetworkDown != nil })
)
