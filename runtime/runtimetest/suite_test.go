package runtimetest_test

import (
	"context"
	"errors"
	"flag"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/internal/testenv"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
	"github.com/kubeletkit/kubeletkit/runtime/runtimetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestSuite runs the suite on the fake, with the defect of this process.
func TestSuite(t *testing.T) {
	dir := t.TempDir()
	defect, broken := defects[testenv.Defect()]
	runtimetest.Suite(t, runtimetest.Factory{VirtualTime: true, New: func(t *testing.T) *runtimetest.Subject {
		d := &defective{Runtime: fake.New(fake.Options{Dir: dir, Behavior: program})}
		t.Cleanup(func() { require.NoError(t, d.Close()) })
		d.Inject(fake.Fault{Call: "PullImage", Target: fake.Target{Image: "missing:1"},
			Err: errors.New("no such image")})
		if broken {
			defect.apply(d)
		}
		host := *d.Host()
		host.PodLogsDir = filepath.Join(dir, "logs")
		return &runtimetest.Subject{
			Runtime: d, Host: &host, Dir: dir, Image: "image:1", MissingImage: "missing:1",
			Sleep: []string{"sleep"}, Stubborn: []string{"stubborn"},
			Exit: func(after time.Duration, code int32) []string {
				return []string{"exit", after.String(), strconv.Itoa(int(code))}
			},
			Print:     func(text string) []string { return []string{"print", text} },
			ExecPrint: func(text string) []string { return []string{"print", text} },
			ExecExit:  func(code int32) []string { return []string{"exit", strconv.Itoa(int(code))} },
			ExecSleep: []string{"sleep"},
			Restart: func(absent func()) error {
				d.Stop()
				absent()
				d.Start(d.memory)
				return nil
			},
			NetworkDown: func(down bool) {
				d.SetCondition(criv1.NetworkReady, !down, "NetworkPluginNotReady",
					"no CNI")
			},
		}
	}})
}

func TestTheSuiteFindsDefects(t *testing.T) {
	found := map[string]string{}
	for name, defect := range defects {
		found[name] = defect.found
	}
	testenv.FindsDefects(t, "TestSuite", found, runtimetest.Cases(), nil)
}

// passes runs a test and reports whether it passes. It prints nothing, also with -v,
// since the output of an example is compared.
func passes(test func(t *testing.T)) bool {
	verbose := flag.Lookup("test.v").Value
	was := verbose.String()
	_ = verbose.Set("false")
	defer func() { _ = verbose.Set(was) }()
	match := func(_, _ string) (bool, error) { return true, nil }
	return testing.RunTests(match, []testing.InternalTest{{Name: "TestConformance", F: test}})
}

func program(c fake.Container) fake.Behavior {
	switch c.Command[0] {
	case "exit":
		after, _ := time.ParseDuration(c.Command[1])
		code, _ := strconv.Atoi(c.Command[2])
		return fake.Exits(after, int32(code))
	case "print":
		return fake.Behavior{RunFor: 1, Output: c.Command[1] + "\n"}
	case "stubborn":
		return fake.Behavior{IgnoresStop: true}
	default:
		return fake.Behavior{Exec: exec}
	}
}

func exec(ctx context.Context, cmd []string) (runtime.ExecResult, error) {
	switch cmd[0] {
	case "print":
		return runtime.ExecResult{Output: []byte(cmd[1])}, nil
	case "exit":
		code, _ := strconv.Atoi(cmd[1])
		return runtime.ExecResult{ExitCode: int32(code)}, nil
	default:
		<-ctx.Done()
		return runtime.ExecResult{}, ctx.Err()
	}
}
