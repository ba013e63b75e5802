package lifecycle_test

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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// all joins every step, and writes down its calls.
type all struct {
	name  string
	calls *[]string
	err   error
	panic bool
}

func (a all) call(step string) error {
	*a.calls = append(*a.calls, step+" "+a.name)
	if a.panic {
		panic("broken")
	}
	return a.err
}

func (a all) Name() string              { return a.name }
func (a all) Run(context.Context) error { return nil }
func (a all) Admit(req lifecycle.AdmitRequest) (lifecycle.AdmitResponse, error) {
	return lifecycle.AdmitResponse{Evict: []lifecycle.Preemption{{Reason: a.name}}}, a.call("admit")
}
func (a all) Prepare(context.Context, lifecycle.PrepareRequest) (lifecycle.PrepareResponse, error) {
	return lifecycle.PrepareResponse{
		Volumes:     map[string]runtime.Volume{"shared": {HostPath: a.name}, a.name: {}},
		PullSecrets: make([]v1.Secret, 1),
		RetryAfter:  time.Duration(len(*a.calls)+1) * time.Minute,
		Changed:     a.name == "a",
		ResizeError: "no room in " + a.name,
	}, a.call("prepare")
}
func (a all) EditSandbox(context.Context, *v1.Pod) (runtime.SandboxEdits, error) {
	return runtime.SandboxEdits{CgroupParent: a.name}, a.call("sandbox")
}
func (a all) EditContainer(_ context.Context, _ *v1.Pod, c *v1.Container) (runtime.ContainerEdits, error) {
	return runtime.ContainerEdits{CDIDevices: []string{a.name}}, a.call("container " + c.Name)
}
func (a all) Running(context.Context, *v1.Pod, *runtime.PodStatus) error { return a.call("running") }
func (a all) Refused(*v1.Pod)                                            { _ = a.call("refused") }
func (a all) Stopped(context.Context, lifecycle.EndedRequest) error      { return a.call("stopped") }
func (a all) Ended(context.Context, lifecycle.EndedRequest) error        { return a.call("ended") }
func (a all) Gone(context.Context, lifecycle.GoneRequest) error          { return a.call("gone") }

func TestOrderOfComponents(t *testing.T) {
	var calls []string
	s, err := lifecycle.New(all{name: "a", calls: &calls}, all{name: "b", calls: &calls})
	require.NoError(t, err)
	take := func() []string {
		out := calls
		calls = nil
		return out
	}
	pod := &v1.Pod{}

	admitted, err := s.Admit(lifecycle.AdmitRequest{})
	require.NoError(t, err)
	assert.Equal(t, []lifecycle.Preemption{{Reason: "a"}, {Reason: "b"}}, admitted.Evict)
	prepared, err := s.Prepare(t.Context(), lifecycle.PrepareRequest{Pod: pod})
	require.NoError(t, err)
	assert.Equal(t, map[string]runtime.Volume{"shared": {HostPath: "b"}, "a": {}, "b": {}}, prepared.Volumes)
	assert.Len(t, prepared.PullSecrets, 2)
	assert.Equal(t, 3*time.Minute, prepared.RetryAfter, "the shortest")
	assert.True(t, prepared.Changed)
	assert.Equal(t, "no room in a; no room in b", prepared.ResizeError)
	sandbox, err := s.SandboxEdits(pod)(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "b", sandbox.CgroupParent, "the later one wins")
	container, err := s.ContainerEdits(pod)(t.Context(), &v1.Container{Name: "c"})
	require.NoError(t, err)
	assert.Equal(t, []string{"a", "b"}, container.CDIDevices)
	require.True(t, s.HandleRunning())
	require.NoError(t, s.Running(t.Context(), pod, nil))
	assert.Equal(t, []string{
		"admit a", "admit b", "prepare a", "prepare b", "sandbox a", "sandbox b", "container c a", "container c b",
		"running a", "running b",
	}, take())

	require.NoError(t, s.Refused(pod))
	require.NoError(t, s.Stopped(t.Context(), lifecycle.EndedRequest{}))
	require.NoError(t, s.Ended(t.Context(), lifecycle.EndedRequest{}))
	require.NoError(t, s.Gone(t.Context(), lifecycle.GoneRequest{}))
	assert.Equal(t, []string{"refused b", "refused a", "stopped b", "stopped a", "ended b", "ended a", "gone b",
		"gone a"}, take(), "in the reverse order")
	assert.Len(t, s.Runners(), 2)
}

func TestErrorsOfComponents(t *testing.T) {
	for name, broken := range map[string]all{"error": {err: errors.New("disk full")}, "panic": {panic: true}} {
		t.Run(name, func(t *testing.T) {
			var calls []string
			broken.name, broken.calls = "broken", &calls
			s, err := lifecycle.New(all{name: "a", calls: &calls}, broken, all{name: "c", calls: &calls})
			require.NoError(t, err)
			pod := &v1.Pod{}
			for step, call := range map[string]func() error{
				"admit":     func() error { _, err := s.Admit(lifecycle.AdmitRequest{}); return err },
				"prepare":   func() error { _, err := s.Prepare(t.Context(), lifecycle.PrepareRequest{Pod: pod}); return err },
				"sandbox":   func() error { _, err := s.SandboxEdits(pod)(t.Context()); return err },
				"container": func() error { _, err := s.ContainerEdits(pod)(t.Context(), &v1.Container{}); return err },
				"running":   func() error { return s.Running(t.Context(), pod, nil) },
				"stopped":   func() error { return s.Stopped(t.Context(), lifecycle.EndedRequest{}) },
				"ended":     func() error { return s.Ended(t.Context(), lifecycle.EndedRequest{}) },
				"gone":      func() error { return s.Gone(t.Context(), lifecycle.GoneRequest{}) },
			} {
				calls = nil
				err := call()
				var failed *lifecycle.ComponentError
				require.ErrorAs(t, err, &failed, step)
				assert.Equal(t, "broken", failed.Component)
				want := 2
				if step == "running" {
					want = 3
				}
				assert.Len(t, calls, want, "%s: those after it are not called, except in Running", step)
			}
		})
	}
	refuses := lifecycle.AdmitterFunc("policy",
		func(lifecycle.AdmitRequest) error { return lifecycle.Refuse("Denied", "not here") })
	_, err := lifecycle.Chain(refuses).Admit(lifecycle.AdmitRequest{})
	assert.EqualError(t, err, "Denied: not here", "a refusal is for users, who do not know the component")
}

type nothing struct{}

func (nothing) Name() string { return "nothing" }

func TestComponentsThatCannotJoin(t *testing.T) {
	allow := func(name string) lifecycle.Component {
		return lifecycle.AdmitterFunc(name, func(lifecycle.AdmitRequest) error { return nil })
	}
	_, err := lifecycle.New(nil, nothing{}, allow("a"), allow("a"), allow(""))
	for _, want := range []string{"a component is nil", `"nothing"`, "joins no step",
		`two components have the name "a"`, "has no name"} {
		assert.ErrorContains(t, err, want)
	}
}

// A component that only runs, or only needs the agent, is one.
func TestComponentsWithoutSteps(t *testing.T) {
	s, err := lifecycle.New(runner{}, joiner{})
	require.NoError(t, err)
	assert.Equal(t, []lifecycle.Runner{runner{}}, s.Runners())
}

type runner struct{}

func (runner) Name() string              { return "runner" }
func (runner) Run(context.Context) error { return nil }

type joiner struct{}

func (joiner) Name() string              { return "joiner" }
func (joiner) Join(lifecycle.Node) error { return nil }

// Steps that no component joins cost nothing.
func TestNoComponents(t *testing.T) {
	empty, err := lifecycle.New()
	require.NoError(t, err)
	for _, s := range []*lifecycle.Steps{nil, empty} {
		_, err := s.Admit(lifecycle.AdmitRequest{})
		require.NoError(t, err)
		assert.Nil(t, s.SandboxEdits(&v1.Pod{}))
		assert.Nil(t, s.ContainerEdits(&v1.Pod{}))
		assert.False(t, s.HandleRunning())
		assert.Empty(t, s.Runners())
		require.NoError(t, s.Refused(&v1.Pod{}))
		require.NoError(t, s.Gone(t.Context(), lifecycle.GoneRequest{}))
	}
}

// serialPorts gives each pod that asks for one the serial port of the machine.
type serialPorts struct{}

func (serialPorts) Name() string { return "serial ports" }

func (serialPorts) Admit(req lifecycle.AdmitRequest) (lifecycle.AdmitResponse, error) {
	if wantsPort(req.Pod) {
		for _, other := range req.Active {
			if wantsPort(other) {
				return lifecycle.AdmitResponse{}, lifecycle.Refuse("OutOfSerialPorts", "pod "+other.Name+
					" has the only one")
			}
		}
	}
	return lifecycle.AdmitResponse{}, nil
}

func (serialPorts) EditContainer(_ context.Context, pod *v1.Pod, _ *v1.Container) (runtime.ContainerEdits, error) {
	if !wantsPort(pod) {
		return runtime.ContainerEdits{}, nil
	}
	return runtime.ContainerEdits{Devices: []runtime.Device{{HostPath: "/dev/ttyS0", ContainerPath: "/dev/ttyS0",
		Permissions: "rw"}}}, nil
}

func wantsPort(pod *v1.Pod) bool { return pod.Annotations["example.com/serial"] != "" }

// A component joins the steps that it needs. It is given to an agent in kubeletkit.Options.Join.
func Example() {
	steps, err := lifecycle.New(serialPorts{})
	if err != nil {
		fmt.Println(err)
		return
	}
	meter := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "meter",
		Annotations: map[string]string{"example.com/serial": "yes"}}}
	_, err = steps.Admit(lifecycle.AdmitRequest{Pod: meter})
	fmt.Println("admitted:", err == nil)
	edits, _ := steps.ContainerEdits(meter)(context.Background(), &v1.Container{Name: "main"})
	fmt.Println(edits.Devices)

	second := meter.DeepCopy()
	second.Name = "second"
	_, err = steps.Admit(lifecycle.AdmitRequest{Pod: second, Active: []*v1.Pod{meter}})
	fmt.Println(err)
	// Output:
	// admitted: true
	// [{/dev/ttyS0 /dev/ttyS0 rw}]
	// OutOfSerialPorts: pod meter has the only one
}

// patient is a component that waits.
type patient struct{ after time.Duration }

func (patient) Name() string { return "patient" }

func (p patient) Prepare(context.Context, lifecycle.PrepareRequest) (lifecycle.PrepareResponse, error) {
	return lifecycle.PrepareResponse{RetryAfter: p.after, Changed: true},
		fmt.Errorf("ports: %w", lifecycle.Wait("WaitingForPort", "not plugged in"))
}

// A wait survives the wrapping, and keeps the time after which the step has something to do. Later components are not
// called.
func TestWait(t *testing.T) {
	var calls []string
	s, err := lifecycle.New(patient{time.Minute}, all{name: "later", calls: &calls})
	require.NoError(t, err)
	r, err := s.Prepare(t.Context(), lifecycle.PrepareRequest{Pod: &v1.Pod{}})
	var wait *runtime.WaitError
	require.ErrorAs(t, err, &wait)
	assert.Equal(t, runtime.WaitError{Reason: "WaitingForPort", Message: "not plugged in"}, *wait)
	assert.Equal(t, lifecycle.PrepareResponse{RetryAfter: time.Minute}, r)
	assert.Empty(t, calls)
}

func TestPostpone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls []string
		s, err := lifecycle.New(all{name: "a", calls: &calls})
		require.NoError(t, err)
		prepare := func(uid types.UID) error {
			_, err := s.Prepare(t.Context(),
				lifecycle.PrepareRequest{Pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}}})
			return err
		}
		first, second := errors.New("first"), errors.New("second")
		release := s.Postpone("held", first, time.Minute)
		assert.Equal(t, first, prepare("held"))
		assert.Empty(t, calls)
		assert.NoError(t, prepare("other"))
		s.Postpone("held", second, time.Minute)
		release()
		assert.Equal(t, second, prepare("held"), "the later one")
		time.Sleep(time.Minute)
		assert.NoError(t, prepare("held"), "the limit has passed")
		s.Postpone("held", first, time.Minute)()
		assert.NoError(t, prepare("held"))
		(*lifecycle.Steps)(nil).Postpone("held", first, time.Minute)()
	})
}
