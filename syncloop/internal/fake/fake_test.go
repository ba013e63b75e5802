package fake_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	volumefake "github.com/kubeletkit/kubeletkit/node/volume/fake"
	"github.com/kubeletkit/kubeletkit/pleg"
	plegfake "github.com/kubeletkit/kubeletkit/pleg/fake"
	"github.com/kubeletkit/kubeletkit/podconfig"
	podconfigfake "github.com/kubeletkit/kubeletkit/podconfig/fake"
	"github.com/kubeletkit/kubeletkit/podconfig/podmanager"
	"github.com/kubeletkit/kubeletkit/podworkers"
	workersfake "github.com/kubeletkit/kubeletkit/podworkers/fake"
	proberfake "github.com/kubeletkit/kubeletkit/prober/fake"
	"github.com/kubeletkit/kubeletkit/runtime"
	runtimefake "github.com/kubeletkit/kubeletkit/runtime/fake"
	statusfake "github.com/kubeletkit/kubeletkit/status/fake"
	"github.com/kubeletkit/kubeletkit/syncloop"
	"github.com/kubeletkit/kubeletkit/syncloop/internal/fake"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func makePod(name string) *v1.Pod {
	return testpod.New(name, testpod.Containers("main"))
}

// node is a loop in virtual time with fakes all around.
type node struct {
	runtime *runtimefake.Runtime
	config  *podconfigfake.Config
	events  *plegfake.PLEG
	pods    *podmanager.Store
}

func onNode(t *testing.T, h syncloop.Handler, n *node, test func(ctx context.Context)) {
	t.Helper()
	if n.runtime == nil {
		n.runtime, n.pods = runtimefake.New(runtimefake.Options{}), podmanager.New()
	}
	n.config, n.events = podconfigfake.NewConfig(), plegfake.New(plegfake.Options{})
	loop, err := syncloop.New(syncloop.Deps{Handler: h, Config: n.config, PLEG: n.events, Runtime: n.runtime,
		Pods: n.pods}, syncloop.Options{})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 3) // one value of each of the three goroutines
	go func() { ended <- n.events.Run(ctx) }()
	go func() { ended <- n.config.Run(ctx) }()
	go func() { ended <- loop.Run(ctx) }()
	test(ctx)
	cancel()
	require.NoError(t, errors.Join(<-ended, <-ended, <-ended))
}

func TestHandlerAndConfigWithTheLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, n := fake.NewHandler(), &node{}
		h.Fail(fake.Prepare, "", 1, errors.New("not yet"))
		h.Fail(fake.HandlePodCleanups, "", 1, errors.New("disk full"))
		onNode(t, h, n, func(ctx context.Context) {
			web, db := makePod("web"), makePod("db")
			n.pods.Set(web)
			for _, op := range []podconfig.Op{podconfig.Add, podconfig.Update, podconfig.Delete, podconfig.Reconcile,
				podconfig.Remove} {
				require.NoError(t, n.config.Push(ctx, podconfig.Change{Op: op, Pods: []*v1.Pod{web, db}}))
			}
			n.events.Push(runtime.RefOf(web), pleg.Event{Type: pleg.ContainerDied})
			_, err := h.UntilCalled(ctx, fake.HandlePodSyncs, "uid-web")
			require.NoError(t, err)
			_, err = h.UntilCalled(ctx, fake.HandlePodReconcile, "uid-db")
			require.NoError(t, err)
			assert.Equal(t, []string{
				"Prepare", "Prepare", "HandlePodAdditions default/web default/db",
				"HandlePodUpdates default/web default/db",
				"HandlePodUpdates default/web default/db", "HandlePodReconcile default/web default/db",
				"HandlePodRemoves default/web default/db", "HandlePodSyncs default/web",
			}, h.Transcript(""))

			h.Forget()
			time.Sleep(time.Minute)
			assert.Empty(t, h.Transcript(""))
			n.config.SetSourcesReady(true)
			require.NoError(t, h.Until(ctx, func() bool { return len(h.Calls("")) == 3 }),
				"one that fails is tried again")

			release := h.Hold(fake.HandlePodUpdates, "uid-db")
			require.NoError(t, n.config.Push(ctx, podconfig.Change{Op: podconfig.Update, Pods: []*v1.Pod{db}}))
			short, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			require.ErrorIs(t, n.config.Push(short, podconfig.Change{Op: podconfig.Update, Pods: []*v1.Pod{web}}),
				context.DeadlineExceeded)
			release()
			require.NoError(t, n.config.Push(ctx, podconfig.Change{Op: podconfig.Update, Pods: []*v1.Pod{web}}))
		})
	})
}

func TestTheEndOfTheConfig(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := podconfigfake.NewConfig()
		loop, err := syncloop.New(syncloop.Deps{
			Handler: fake.NewHandler(), Config: config, PLEG: quiet{}, Runtime: runtimefake.New(runtimefake.Options{}),
			Pods: podmanager.New(),
		}, syncloop.Options{})
		require.NoError(t, err)
		over, cancel := context.WithCancel(t.Context())
		cancel()
		require.NoError(t, config.Run(over), "it closes the stream")
		require.ErrorContains(t, loop.Run(t.Context()), "desired state ended")
	})
}

// quiet is a runtime of which there are no events.
type quiet struct{ pleg.Base }

func (quiet) Run(ctx context.Context) error { <-ctx.Done(); return nil }
func (quiet) Watch() <-chan pleg.PodEvents  { return nil }

// TestWorkersAndStatusesWithTheHandler has a pod that is wanted, one that is not, and one
// that only the disk knows.
func TestWorkersAndStatusesWithTheHandler(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w, st, dirs, pods := workersfake.NewWorkers(), statusfake.NewManager(), volumefake.NewVolumes(),
			podmanager.New()
		rt := runtimefake.New(runtimefake.Options{})
		old := runtimefake.Pods(1, 1)[0]
		require.NoError(t, rt.Seed(old))
		steps, err := lifecycle.New(gone{dirs})
		require.NoError(t, err)
		h, err := syncloop.NewHandler(
			syncloop.HandlerDeps{Pods: pods, Workers: w, Status: st, Runtime: rt, Prober: proberfake.New(),
				Steps: steps},
			syncloop.HandlerOptions{PodsDir: filepath.Join(dir, "pods"), Admit: lifecycle.AdmitterFunc("test",
				func(req lifecycle.AdmitRequest) error {
					if req.Pod.Name == "big" {
						return lifecycle.Refuse("OutOfpods", "")
					}
					return nil
				})})
		require.NoError(t, err)
		n := &node{runtime: rt, pods: pods}
		onNode(t, h, n, func(ctx context.Context) {
			web, big := makePod("web"), makePod("big")
			require.NoError(t, n.config.Push(ctx, podconfig.Change{Op: podconfig.Add, Pods: []*v1.Pod{web, big}}))
			refused, err := st.Until(ctx, "uid-big", func(s v1.PodStatus) bool { return s.Phase == v1.PodFailed })
			require.NoError(t, err)
			assert.Equal(t, "OutOfpods", refused.Reason)
			assert.True(t, w.State("uid-web").CouldHaveRunningContainers())
			assert.False(t, w.State("uid-web").Synced)
			assert.False(t, w.State("uid-big").Known())

			n.config.SetSourcesReady(true)
			call, err := w.UntilCalled(ctx, workersfake.UpdatePod, old.UID)
			require.NoError(t, err)
			synctest.Wait() // orphans come before the pods that are known
			assert.Equal(t, "UpdatePod default/pod-0 kill orphan", call.String())
			assert.Equal(t, podworkers.PhaseTerminating, w.State(old.UID).Phase)
			assert.True(t, w.State("uid-web").Synced)

			require.NoError(t, n.config.Push(ctx, podconfig.Change{Op: podconfig.Remove, Pods: []*v1.Pod{web, big}}))
			require.NoError(t, w.Until(ctx, func() bool { return w.State("uid-web").TerminationRequested() }))
			assert.Equal(t, podworkers.Create, w.Updates("uid-web")[0].Type)
			assert.Equal(t, podworkers.Kill, w.Updates("uid-web")[1].Type)
			gone := w.State("uid-web")
			gone.Phase = podworkers.PhaseTerminated
			w.SetState("uid-web", gone)
			require.NoError(t, w.Until(ctx, func() bool { return !w.State("uid-web").Known() }),
				"housekeeping forgets it")
			synctest.Wait() // it goes on with the statuses
			w.SetState(old.UID, podworkers.State{})
			assert.False(t, w.State(old.UID).Known())
			assert.Len(t, w.Updates(""), 3)
			_, ok := st.Get("uid-big")
			assert.False(t, ok, "it was pruned")
		})
	})
}

func Example() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	config, handler := podconfigfake.NewConfig(), fake.NewHandler()
	events := plegfake.New(plegfake.Options{})
	loop, err := syncloop.New(syncloop.Deps{
		Handler: handler, Config: config, PLEG: events, Runtime: runtimefake.New(runtimefake.Options{}),
		Pods: podmanager.New(),
	}, syncloop.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	ended := make(chan error)
	go func() { ended <- events.Run(ctx) }()
	go func() { ended <- config.Run(ctx) }()
	go func() { ended <- loop.Run(ctx) }()

	fmt.Println(config.Push(ctx, podconfig.Change{Op: podconfig.Add, Pods: []*v1.Pod{makePod("web")}}))
	call, err := handler.UntilCalled(ctx, fake.HandlePodAdditions, "uid-web")
	fmt.Println(&call, err)
	cancel()
	fmt.Println(<-ended, <-ended, <-ended)
	// Output:
	// <nil>
	// HandlePodAdditions default/web <nil>
	// <nil> <nil> <nil>
}

// gone is a component that removes volumes and directories.
type gone struct{ volumes *volumefake.Volumes }

func (gone) Name() string { return "volumes" }
func (g gone) Gone(ctx context.Context, req lifecycle.GoneRequest) error {
	return g.volumes.Remove(ctx, req.Pod, req.Dir)
}
