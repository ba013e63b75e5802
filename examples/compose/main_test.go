package main

import (
	"bytes"
	"context"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/podconfig"
	podconfigfake "github.com/kubeletkit/kubeletkit/podconfig/fake"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMainProgram(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		require.NoError(t, run(t.Context(), &out))
		assert.Equal(t, "pod web is Running\n", out.String())
	})
}

// While there is no route, the node has no address.
func TestWithoutARoute(t *testing.T) {
	root := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		rt, source := fake.New(fake.Options{Dir: root}), podconfigfake.NewSource("test")
		defer rt.Close()
		host := rt.Host()
		host.IPs = nil
		n, err := New(Options{NodeName: "node", RootDir: root, Runtime: rt, Sources: []podconfig.Source{source},
			Host: host})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- n.Run(ctx) }()
		source.Set(makePod("web"))
		time.Sleep(time.Second)
		assert.Equal(t, v1.PodRunning, n.Pods()[0].Status.Phase)
		cancel()
		require.NoError(t, <-done)
	})
}

// agent is what the scenario needs of an agent.
type agent interface {
	Run(ctx context.Context) error
	Pods() []*v1.Pod
}

// Both compositions go through the same scenario.
func TestScenario(t *testing.T) {
	for name, compose := range map[string]func(o Options) (agent, error){
		"by hand": func(o Options) (agent, error) { return New(o) },
		"kubeletkit.New": func(o Options) (agent, error) {
			return kubeletkit.New(kubeletkit.Options{NodeName: o.NodeName, RootDir: o.RootDir, Runtime: o.Runtime,
				Sources: o.Sources, Host: o.Host})
		},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			synctest.Test(t, func(t *testing.T) { scenario(t, root, compose) })
		})
	}
}

func scenario(t *testing.T, root string, compose func(o Options) (agent, error)) {
	rt := fake.New(fake.Options{Dir: root})
	defer rt.Close()
	start := func(source podconfig.Source) (a agent, stop func()) {
		host := *rt.Host()
		host.IPs = []string{"192.0.2.1"}
		a, err := compose(Options{NodeName: "node", RootDir: root, Runtime: rt, Sources: []podconfig.Source{source},
			Host: &host})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- a.Run(ctx) }()
		return a, func() {
			cancel()
			require.NoError(t, <-done)
		}
	}
	after := func(a agent, d time.Duration) map[string]v1.PodStatus {
		time.Sleep(d)
		synctest.Wait()
		out := map[string]v1.PodStatus{}
		for _, pod := range a.Pods() {
			out[pod.Name] = pod.Status
		}
		return out
	}

	source := podconfigfake.NewSource("test")
	a, stop := start(source)
	source.Set(makePod("web"), makePod("db"))
	pods := after(a, time.Second)
	assert.Equal(t, v1.PodRunning, pods["web"].Phase)
	assert.Equal(t, v1.PodRunning, pods["db"].Phase)

	// An exit becomes a restart, and a second one a back-off of 10 s.
	rt.Exit(fake.Target{Pod: "web"}, 1)
	assert.Equal(t, int32(1), after(a, 2*time.Second)["web"].ContainerStatuses[0].RestartCount)
	rt.Exit(fake.Target{Pod: "web"}, 1)
	waiting := after(a, 5*time.Second)["web"].ContainerStatuses[0].State.Waiting
	require.NotNil(t, waiting)
	assert.Equal(t, "CrashLoopBackOff", waiting.Reason)
	assert.Equal(t, int32(2), after(a, 7*time.Second)["web"].ContainerStatuses[0].RestartCount)

	// A liveness probe that fails restarts its container.
	probed := makePod("probed")
	probed.Spec.Containers[0].LivenessProbe = &v1.Probe{PeriodSeconds: 1, FailureThreshold: 1,
		ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"check"}}}}
	rt.Script(fake.Target{Pod: "probed"},
		fake.Behavior{Exec: func(context.Context, []string) (runtime.ExecResult, error) {
			return runtime.ExecResult{Output: []byte("sick"), ExitCode: 1}, nil
		}}, fake.Behavior{})
	source.Set(makePod("web"), makePod("db"), probed)
	assert.NotZero(t, after(a, 30*time.Second)["probed"].ContainerStatuses[0].RestartCount)

	// A removal leaves nothing behind.
	source.Set(makePod("web"))
	assert.Len(t, after(a, time.Minute), 1)
	assert.NoDirExists(t, filepath.Join(root, "pods", "uid-db"))
	listed, err := rt.ListPods(t.Context())
	require.NoError(t, err)
	require.Len(t, listed, 1)

	// The next agent adopts what runs.
	stop()
	id := listed[0].Containers[0].ID
	next := podconfigfake.NewSource("test")
	b, stop := start(next)
	defer stop()
	next.Set(makePod("web"))
	assert.Equal(t, id.String(), after(b, 5*time.Second)["web"].ContainerStatuses[0].ContainerID)
}

func makePod(name string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID("uid-" + name)},
		// of its own: a pull is shared, or not
		Spec: v1.PodSpec{RestartPolicy: v1.RestartPolicyAlways,
			Containers: []v1.Container{{Name: "main", Image: "busybox-" + name}}},
	}
}
