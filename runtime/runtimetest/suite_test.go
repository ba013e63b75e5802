package runtimetest_test

import (
	"context"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
	"github.com/kubeletkit/kubeletkit/runtime/runtimetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// defective is a runtime with one defect. A field that is nil changes nothing.
type defective struct {
	*fake.Runtime
	list    func(pods []*runtime.Pod) []*runtime.Pod
	inspect func(s *runtime.PodStatus)
	sync    func(req *runtime.PodSync, res *runtime.SyncResult) (after func())
	kill    func(ctx context.Context, req runtime.PodKill) error
	exec    func(err error) error
	remove  func(ctx context.Context, id runtime.ContainerID, err error) error
	watch   func(ctx context.Context, established func()) error
}

func (d *defective) ListPods(ctx context.Context) ([]*runtime.Pod, error) {
	pods, err := d.Runtime.ListPods(ctx)
	if d.list != nil {
		pods = d.list(pods)
	}
	return pods, err
}

func (d *defective) InspectPod(ctx context.Context, ref runtime.PodRef) (*runtime.PodStatus, error) {
	s, err := d.Runtime.InspectPod(ctx, ref)
	if err == nil && d.inspect != nil {
		d.inspect(s)
	}
	return s, err
}

func (d *defective) SyncPod(ctx context.Context, req runtime.PodSync) (runtime.SyncResult, error) {
	var res runtime.SyncResult
	after := func() {}
	if d.sync != nil {
		after = d.sync(&req, &res)
	}
	res, err := d.Runtime.SyncPod(ctx, req)
	after()
	return res, err
}

func (d *defective) KillPod(ctx context.Context, req runtime.PodKill) error {
	if d.kill != nil {
		return d.kill(ctx, req)
	}
	return d.Runtime.KillPod(ctx, req)
}

func (d *defective) Exec(ctx context.Context, id runtime.ContainerID, cmd []string, timeout time.Duration) (runtime.ExecResult, error) {
	res, err := d.Runtime.Exec(ctx, id, cmd, timeout)
	if d.exec != nil {
		err = d.exec(err)
	}
	return res, err
}

func (d *defective) RemoveContainer(ctx context.Context, id runtime.ContainerID) error {
	err := d.Runtime.RemoveContainer(ctx, id)
	if d.remove != nil {
		err = d.remove(ctx, id, err)
	}
	return err
}

func (d *defective) WatchEvents(ctx context.Context, established func(), hint func(runtime.Hint)) error {
	if d.watch != nil {
		return d.watch(ctx, established)
	}
	return d.Runtime.WatchEvents(ctx, established, hint)
}

// defects has, by its name, each defect and a test that finds it.
var defects = map[string]struct {
	found string
	apply func(d *defective)
}{
	"lists only pods that run": {"ListStates", func(d *defective) {
		d.list = func(pods []*runtime.Pod) []*runtime.Pod {
			return slices.DeleteFunc(pods, func(p *runtime.Pod) bool { return !p.Running() })
		}
	}},
	"lists only containers that run": {"ListStates", func(d *defective) {
		d.list = func(pods []*runtime.Pod) []*runtime.Pod {
			for _, p := range pods {
				p.Containers = slices.DeleteFunc(p.Containers, func(c runtime.Container) bool { return c.State != runtime.ContainerRunning })
			}
			return pods
		}
	}},
	"lists exited containers as running": {"ListStates", func(d *defective) {
		d.list = func(pods []*runtime.Pod) []*runtime.Pod {
			for _, p := range pods {
				for i := range p.Containers {
					p.Containers[i].State = runtime.ContainerRunning
				}
			}
			return pods
		}
	}},
	"loses exit codes": {"ExitCodes", func(d *defective) {
		d.inspect = func(s *runtime.PodStatus) {
			for i := range s.Containers {
				s.Containers[i].ExitCode = 0
			}
		}
	}},
	"does not count restarts": {"SandboxIsMadeAgain", func(d *defective) {
		d.inspect = func(s *runtime.PodStatus) {
			for i := range s.Containers {
				s.Containers[i].RestartCount = 0
			}
		}
	}},
	"orders the oldest first": {"SandboxIsMadeAgain", func(d *defective) {
		d.inspect = func(s *runtime.PodStatus) {
			for i, j := 0, len(s.Containers)-1; i < j; i, j = i+1, j-1 {
				s.Containers[i], s.Containers[j] = s.Containers[j], s.Containers[i]
			}
		}
	}},
	"always says that something changed": {"SyncIsIdempotent", func(d *defective) {
		d.sync = func(_ *runtime.PodSync, res *runtime.SyncResult) func() {
			return func() { res.Changed = true }
		}
	}},
	"is too hasty with the second sync": {"SyncIsIdempotent", func(d *defective) {
		d.sync = func(req *runtime.PodSync, _ *runtime.SyncResult) func() {
			for _, i := range d.Running(fake.Target{UID: req.Pod.UID}) {
				d.Exit(fake.Target{UID: i.Pod.UID}, 1)
			}
			return func() {}
		}
	}},
	"does not stop": {"Kill", func(d *defective) {
		d.kill = func(context.Context, runtime.PodKill) error { return nil }
	}},
	"kills at once": {"GracePeriod", func(d *defective) {
		d.kill = func(ctx context.Context, req runtime.PodKill) error {
			req.GracePeriod = new(int64)
			return d.Runtime.KillPod(ctx, req)
		}
	}},
	"ignores the end of the context": {"Cancelled", func(d *defective) {
		d.kill = func(ctx context.Context, req runtime.PodKill) error {
			return d.Runtime.KillPod(context.WithoutCancel(ctx), req)
		}
	}},
	"returns another error for what is not there": {"Unknown", func(d *defective) {
		d.exec = func(err error) error {
			if err != nil {
				return errors.New("failed")
			}
			return nil
		}
	}},
	"removes what runs": {"Remove", func(d *defective) {
		d.remove = func(context.Context, runtime.ContainerID, error) error { return nil }
	}},
	"has no events": {"EventsAreHints", func(d *defective) {
		d.watch = func(ctx context.Context, established func()) error {
			established()
			<-ctx.Done()
			return ctx.Err()
		}
	}},
	"gives no reason for the end of its events": {"EventsAreHints", func(d *defective) {
		d.watch = func(ctx context.Context, established func()) error {
			_ = d.Runtime.WatchEvents(ctx, established, func(runtime.Hint) {})
			return nil
		}
	}},
	"does not restart": {"RestartPolicies", func(d *defective) {
		d.sync = func(req *runtime.PodSync, _ *runtime.SyncResult) func() {
			req.Pod = req.Pod.DeepCopy()
			req.Pod.Spec.RestartPolicy = "Never"
			return func() {}
		}
	}},
	"starts init containers together": {"InitContainersInOrder", func(d *defective) {
		d.sync = func(req *runtime.PodSync, _ *runtime.SyncResult) func() {
			req.Pod = req.Pod.DeepCopy()
			req.Pod.Spec.Containers = append(req.Pod.Spec.InitContainers, req.Pod.Spec.Containers...)
			req.Pod.Spec.InitContainers = nil
			return func() {}
		}
	}},
}

const defectVariable = "RUNTIMETEST_DEFECT"

// TestSuite runs the suite on the fake, with the defect that the environment variable
// names.
func TestSuite(t *testing.T) {
	dir := t.TempDir()
	defect, broken := defects[os.Getenv(defectVariable)]
	runtimetest.Suite(t, runtimetest.Factory{VirtualTime: true, New: func(t *testing.T) *runtimetest.Subject {
		d := &defective{Runtime: fake.New(fake.Options{Dir: dir, Behavior: program})}
		t.Cleanup(func() { require.NoError(t, d.Close()) })
		if broken {
			defect.apply(d)
		}
		return &runtimetest.Subject{
			Runtime: d, Host: d.Host(), Dir: dir, Image: "image:1",
			Sleep: []string{"sleep"}, Stubborn: []string{"stubborn"},
			Exit: func(after time.Duration, code int32) []string {
				return []string{"exit", after.String(), strconv.Itoa(int(code))}
			},
		}
	}})
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
	case "stubborn":
		return fake.Behavior{IgnoresStop: true}
	default:
		return fake.Behavior{}
	}
}

// TestTheSuiteFindsDefects runs the suite in processes of its own, where it has to
// fail.
func TestTheSuiteFindsDefects(t *testing.T) {
	if os.Getenv(defectVariable) != "" {
		t.Skip("this is such a process")
	}
	self, err := filepath.Abs(os.Args[0])
	require.NoError(t, err)
	for name, defect := range defects {
		t.Run(name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), self, "-test.run=^TestSuite$/^"+defect.found+"$", "-test.v")
			cmd.Env = append(os.Environ(), defectVariable+"="+name)
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			require.ErrorAs(t, err, &exit, "the suite does not find it:\n%s", out)
			assert.Contains(t, string(out), "--- FAIL: TestSuite/"+defect.found, "for another reason:\n%s", out)
		})
	}
}
