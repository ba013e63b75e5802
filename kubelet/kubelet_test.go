package kubelet

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// embedder is a program that runs kubelets on runtimes in memory.
type embedder struct {
	testing.TB
	root string
	rt   *fake.Runtime
	pods chan []*v1.Pod
	opts Options
}

// newEmbedder returns a program whose kubelet has no settings of the machine.
func newEmbedder(t testing.TB) *embedder {
	t.Helper()
	root, err := os.MkdirTemp("", "mk") // short, for the sockets in it
	require.NoError(t, err)
	e := &embedder{TB: t, root: root, rt: fake.New(fake.Options{Events: fake.Containerd()}),
		pods: make(chan []*v1.Pod, 1)}
	t.Cleanup(func() {
		require.NoError(t, e.rt.Close())
		require.NoError(t, os.RemoveAll(root))
	})
	e.opts = Options{
		Name: "acme-kubelet", Logger: silent(), Runtime: e.rt,
		Sources: []podconfig.Source{podconfig.NewChannel("fleet", e.pods)},
		Configuration: &kubeletconfig.KubeletConfiguration{FailSwapOn: ptr.To(false), FailCgroupV1: ptr.To(false),
			HealthzPort: ptr.To[int32](0), EnableServer: ptr.To(false), PodLogsDir: filepath.Join(root, "logs")},
	}
	return e
}

// start starts a kubelet, which runs until stop is called.
func (e *embedder) start(args ...string) (k *Kubelet, stop func()) {
	e.Helper()
	config, err := Load(append(args, "--root-dir", e.root), e.opts)
	require.NoError(e, err)
	k, err = New(e.Context(), config)
	require.NoError(e, err)
	ctx, cancel := context.WithCancel(e.Context())
	done := make(chan error, 1)
	go func() { done <- k.Run(ctx) }()
	return k, func() {
		e.Helper()
		cancel()
		require.NoError(e, <-done)
	}
}

// runs waits until the pod runs.
func (e *embedder) runs(k *Kubelet, name string) {
	e.Helper()
	require.Eventually(e, func() bool {
		return slices.ContainsFunc(k.Agent().Pods(), func(pod *v1.Pod) bool {
			return pod.Name == name && pod.Status.Phase == v1.PodRunning
		})
	}, time.Minute, 5*time.Millisecond, name)
}

func podOf(name string) *v1.Pod {
	pod := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main", Image: "image"}}}}
	pod.Name, pod.Namespace, pod.UID = name, "default", types.UID("uid-"+name)
	return pod
}

// Two kubelets of a program run side by side, with configurations of their own. Each runs once.
func TestTwoKubelets(t *testing.T) {
	t.Parallel()
	a, b := newEmbedder(t), newEmbedder(t)
	counter := prometheus.NewCounter(prometheus.CounterOpts{Name: "acme_total"})
	a.opts.RegisterMetrics = func(r prometheus.Registerer) error { return r.Register(counter) }
	events := make(chan runtime.Event, 100)
	a.opts.Event = func(e runtime.Event) { events <- e }
	b.opts.RegisterMetrics = a.opts.RegisterMetrics // in a registry of its own
	one, stopOne := a.start("--hostname-override=one")
	two, stopTwo := b.start("--hostname-override=two")
	a.pods <- []*v1.Pod{podOf("web")}
	b.pods <- []*v1.Pod{podOf("web")}
	a.runs(one, "web")
	assert.NotEmpty(t, <-events)
	b.runs(two, "web")
	assert.Equal(t, "one", one.Agent().Parts().Host.NodeName)
	assert.Equal(t, "two", two.Agent().Parts().Host.NodeName)
	require.ErrorIs(t, one.Run(t.Context()), runtime.ErrAlreadyRunning)
	stopOne()
	stopTwo()
	assert.Len(t, a.rt.Running(fake.Target{}), 1, "pods go on running")
	again, stop := a.start("--hostname-override=one")
	a.pods <- nil
	require.Eventually(t, func() bool { return len(a.rt.Running(fake.Target{})) == 0 }, time.Minute, time.Millisecond)
	assert.Empty(t, again.Agent().Pods())
	stop()
}

// A kubelet with any subset of its capabilities starts, runs a pod with a component of the program and stops. TestMain
// sees that no goroutine is left.
func TestSubsetsOfCapabilities(t *testing.T) {
	t.Parallel()
	var all []Capability
	for _, c := range capabilities {
		all = append(all, c.name)
	}
	subsets := map[string][]Capability{"none": all, "all": nil}
	for _, c := range all {
		subsets["without "+string(c)] = []Capability{c}
	}
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("KUBELETKIT_SEED"); s != "" {
		var err error
		seed, err = strconv.ParseUint(s, 10, 64)
		require.NoError(t, err)
	}
	random := rand.New(rand.NewPCG(seed, 0))
	for i := range 10 {
		subsets[fmt.Sprintf("random %d, KUBELETKIT_SEED=%d", i, seed)] = slices.DeleteFunc(slices.Clone(all),
			func(Capability) bool { return random.IntN(2) == 0 })
	}
	for _, name := range slices.Sorted(maps.Keys(subsets)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEmbedder(t)
			e.opts.Without = subsets[name]
			admitted := make(chan string, 1)
			e.opts.Join = []lifecycle.Component{lifecycle.AdmitterFunc("ports", func(req lifecycle.AdmitRequest) error {
				select {
				case admitted <- req.Pod.Name:
				default:
				}
				return nil
			})}
			k, stop := e.start("--address=127.0.0.1", "--enable-server", "--port="+strconv.Itoa(freePort(t)))
			e.pods <- []*v1.Pod{podOf("web")}
			e.runs(k, "web")
			assert.Equal(t, "web", <-admitted)
			stop()
		})
	}
}

// A kubelet is run once, and not after it was closed.
func TestClose(t *testing.T) {
	e := newEmbedder(t)
	config, err := Load([]string{"--root-dir", e.root}, e.opts)
	require.NoError(t, err)
	k, err := New(t.Context(), config)
	require.NoError(t, err)
	require.NoError(t, k.Close())
	require.NoError(t, k.Close())
	require.ErrorIs(t, k.Run(t.Context()), runtime.ErrAlreadyRunning)
}

// A SIGTERM while the kubelet starts has it end the pods, as one later.
func TestDrainOnTermWhileItStarts(t *testing.T) {
	e := newEmbedder(t)
	e.pods <- []*v1.Pod{podOf("web")}
	k, stop := e.start()
	e.runs(k, "web")
	stop()
	require.Len(t, e.rt.Running(fake.Target{}), 1)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(ErrTerminated)
	e.pods <- []*v1.Pod{podOf("web")}
	require.NoError(t, run(ctx, []string{"--root-dir", e.root, "--drain-on-term"}, e.opts))
	assert.Empty(t, e.rt.Running(fake.Target{}))
}

// The commands of a program are in its help, and its name is in the texts of all others.
func TestCommands(t *testing.T) {
	var out bytes.Buffer
	opts := Options{Name: "acme-kubelet", Commands: []*cobra.Command{
		{Use: "ports", Short: "list the ports", Long: "Not those of minikubelet.", GroupID: "none",
			RunE: func(cmd *cobra.Command, _ []string) error {
				_, err := fmt.Fprintln(cmd.OutOrStdout(), "no ports")
				return err
			}},
	}}
	shown := func(args ...string) string {
		out.Reset()
		cmd := Command(opts)
		cmd.SetArgs(args)
		cmd.SetOut(&out)
		require.NoError(t, cmd.Execute())
		return out.String()
	}
	assert.Regexp(t, `(?s)acme-kubelet run FLAGS.*Other commands:.* ports +list the ports`, shown("--help"))
	assert.Equal(t, "no ports\n", shown("ports"))
	assert.Contains(t, shown("ports", "--help"), "Not those of minikubelet.")
	assert.Contains(t, shown("exec", "--help"), "  acme-kubelet exec -it web -- sh\n")
}

// What a configuration needs cannot be left out. The error names both.
func TestImpossibleOptions(t *testing.T) {
	rt := fake.New(fake.Options{})
	defer rt.Close()
	machine := []string{"--fail-swap-on=false", "--fail-cgroupv1=false"}
	for _, tt := range []struct {
		opts Options
		args []string
		want string
	}{
		{Options{Without: []Capability{"wheels"}}, nil, `there is no capability "wheels"`},
		{Options{Name: "a b"}, nil, `field Options.Name "a b"`},
		{Options{Without: []Capability{Cluster}}, []string{"--kubeconfig=/k"},
			`field Options.Without has "cluster", and the configuration has --kubeconfig, which needs it`},
		{Options{Without: []Capability{Placement}}, []string{"--cpu-manager-policy=static", "--reserved-cpus=0",
			"--container-runtime-endpoint=/cri.sock"},
			`"placement", and the configuration has cpuManagerPolicy: static`},
		{Options{Runtime: rt}, []string{"--cpu-manager-policy=static", "--reserved-cpus=0",
			"--container-runtime-endpoint=/cri.sock"},
			`cpuManagerPolicy: static, which needs a container runtime of this`},
		{Options{Without: []Capability{ImageRecords},
			Configuration: map[string]any{"imagePullCredentialsVerificationPolicy": "AlwaysVerify"}},
			[]string{"--container-runtime-endpoint=/cri.sock"}, `"image records", and the configuration has`},
		{Options{Runtime: rt, WrapRuntime: func(runtime.Runtime) runtime.Runtime { return nil }}, machine, "returned nil"},
		{Options{Runtime: rt, WrapRuntime: func(rt runtime.Runtime) runtime.Runtime {
			return struct{ runtime.Runtime }{rt}
		}}, machine, "loses abilities of that which it wraps: CPUSetter, "},
		{Options{Without: []Capability{Shutdown}, Configuration: map[string]any{"shutdownGracePeriod": "10s"}}, nil,
			`"shutdown", and the configuration has shutdownGracePeriod`},
	} {
		config, err := Load(append(tt.args, "--root-dir", t.TempDir()), tt.opts)
		require.NoError(t, err)
		_, err = New(t.Context(), config)
		assert.ErrorContains(t, err, tt.want)
	}
}
