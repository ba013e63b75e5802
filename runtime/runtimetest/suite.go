package runtimetest

import (
	"context"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/bubble"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// Subject is a runtime under test, with what the suite needs for its tests. Runtime,
// Host, Dir, Image, Sleep and Exit are required. If another field is nil, the tests that
// need it are skipped.
type Subject struct {
	Runtime runtime.Runtime
	// Host describes the node. Its PodLogsDir must be a directory that the runtime can
	// write to.
	Host *runtime.Host
	// Dir is a directory. Each pod gets a directory in it.
	Dir string
	// Image is the image of the containers, as in a spec.
	Image string
	// MissingImage is the name of an image that cannot be pulled.
	MissingImage string
	// HostNetwork means that pods can only use the network of the host.
	HostNetwork bool

	// Sleep is a command that runs until it is stopped. It ends soon after SIGTERM, with
	// any code.
	Sleep []string
	// Exit returns a command that ends with the code after the time. After 0, it ends at
	// once.
	Exit func(after time.Duration, code int32) []string
	// Stubborn is a command that does not end on SIGTERM.
	Stubborn []string
	// SaysReady means that Sleep and Stubborn write a line to stdout when they are ready
	// for SIGTERM. The tests then wait for the line. Otherwise they wait for half a second
	// where it matters, and may fail on a busy machine.
	SaysReady bool
	// Print returns a command that writes a line with the text to stdout and ends with
	// code 0.
	Print func(text string) []string

	// ExecPrint returns a command for a container that runs Sleep. The command writes the
	// text to stdout.
	ExecPrint func(text string) []string
	// ExecExit returns such a command that ends with the code.
	ExecExit func(code int32) []string
	// ExecSleep is such a command that runs for a minute or longer.
	ExecSleep []string

	// Restart stops the runtime, calls absent, and starts the runtime again with its
	// state. Containers keep running. The tests go on with the same Runtime.
	Restart func(absent func()) error
	// LosesExits means that a container that ends while the runtime is stopped may be
	// reported with another exit code. containerd reports 255.
	LosesExits bool
	// Unannounced means that an event stream is known to be active only after its first
	// event, as with containerd.
	Unannounced bool
	// Watch calls changed soon after a pod changes in the runtime, with the pod's UID or,
	// if the event does not have it, an empty one. It closes ready when it is active,
	// and returns nil when ctx ends. If nil, it is the Runtime's event stream, if the
	// Runtime has a [runtime.EventSource].
	Watch func(ctx context.Context, ready chan<- struct{}, changed func(uid types.UID)) error
	// NetworkDown makes the pod network of the runtime fail, or work again.
	NetworkDown func(down bool)
}

// Factory makes the subjects of a suite. New is required.
type Factory struct {
	// New returns the subject of one test. Tests may share a subject, also at the same
	// time, since each test looks at its own pods only. New closes what it opened with
	// t.Cleanup.
	New func(t *testing.T) *Subject
	// VirtualTime runs each test in a bubble of [testing/synctest]. New is called in the
	// bubble, so the goroutines that it starts must have ended after the cleanups.
	VirtualTime bool
	// Timeout is the time that the runtime may take for an operation without a time of its
	// own, such as the start of a container. Default: 30 seconds.
	Timeout time.Duration
	// Parallel runs the tests at the same time. It must not be set with VirtualTime, nor
	// if tests share a subject that has Restart or NetworkDown.
	Parallel bool
	// ShortGrace is the grace period for commands that do not end by themselves. It is
	// at least one second. Default: 2 seconds.
	ShortGrace time.Duration
}

// Suite runs each test as a subtest of t.
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
				bubble.Test(t, func(t *testing.T) { run(t, &f, c) })
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
	// missing returns what the subject does not have and the test needs, or "". It may be
	// nil.
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

// cases are in the order in which the author of a runtime implements it.
var cases = []testCase{
	{"Starts", nil, testStarts},
	{"SyncIsIdempotent", nil, testSyncIsIdempotent},
	{"Unknown", nil, testUnknown},
	{"ExitCodes", nil, testExitCodes},
	{"Kill", nil, testKill},
	{"KillTwice", nil, testKillTwice},
	{"KillWithoutSpec", nil, testKillWithoutSpec},
	{"KillOfOneContainer", nil, testKillOfOneContainer},
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
	{"EditSandbox", nil, testEditSandbox},
	{"SandboxReady", nil, testSandboxReady},
	{"EditContainer", nil, testEditContainer},
	{"EditedEnvironment", needPrint, testEditedEnvironment},
	{"EnsureImage", nil, testEnsureImage},
	{"SecretsAndConfigMaps", needPrint, testObjects},
	{"OrderOfVariables", needPrint, testOrderOfVariables},
	{"MissingSecretsAndConfigMaps", nil, testMissingObjects},
	{"OptionalSecretsAndConfigMaps", nil, testOptionalObjects},
	{"UnhealthyContainer", nil, testUnhealthy},
	{"StartupProbeHoldsBack", nil, testStartupProbe},
	{"PostStart", needExec, testPostStart},
	{"PreStop", nil, testPreStop},
	{"PreStopWithoutSpec", nil, testPreStopWithoutSpec},
	{"PreStopIsBounded", nil, testPreStopIsBounded},
	{"FailedPreStop", needExec, testFailedPreStop},
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
	needExec         = need("commands for Exec",
		func(s *Subject) bool { return s.ExecPrint != nil && s.ExecExit != nil })
	needExecSleep = need("slow command for Exec", func(s *Subject) bool { return s.ExecSleep != nil })
	needWatch     = need("events", func(s *Subject) bool {
		_, ok := runtime.Optional[runtime.EventSource](s.Runtime)
		return ok || s.Watch != nil
	})
	needRestart     = need("way to be restarted", func(s *Subject) bool { return s.Restart != nil })
	needNetworkDown = need("way to lose its network", func(s *Subject) bool { return s.NetworkDown != nil })
)
