package agent_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/podconfig/checkpoint"
	podconfigfake "github.com/kubeletkit/kubeletkit/podconfig/fake"
	"github.com/kubeletkit/kubeletkit/podconfig/manifest"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// An agent that starts after a reboot runs the pods that it ran before, until its source
// delivers.
func TestPodsComeBackWithoutTheirSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, rt := t.TempDir(), fake.New(fake.Options{})
		life := func(source podconfig.Source, during func(n *node)) {
			store, err := checkpoint.New(filepath.Join(root, "kept"), checkpoint.Options{})
			require.NoError(t, err)
			agent, err := kubeletkit.New(kubeletkit.Options{
				NodeName: "node", RootDir: root, Runtime: rt,
				Sources: []podconfig.Source{source}, Checkpoint: store,
				Host: &runtime.Host{PodLogsDir: filepath.Join(root, "logs")},
			})
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1) // one value, of the one goroutine
			go func() { done <- agent.Run(ctx) }()
			during(&node{Agent: agent, runtime: rt})
			cancel()
			require.NoError(t, <-done)
		}
		spoken := func(names ...string) *podconfigfake.Source {
			s := podconfigfake.NewSource("test")
			s.Set()
			for i := range names {
				pod := makePod(names[i])
				manifest.SetDefaults(pod)
				pod.Spec.NodeName = "node"
				s.Put(pod)
			}
			return s
		}
		running := func() []string { return texts(rt.Running(fake.Target{})) }

		life(spoken("a", "b"), func(*node) { time.Sleep(10 * time.Second) })
		require.Len(t, running(), 2)

		rt.Restart(fake.Reboot)
		require.Empty(t, running())
		silent := podconfigfake.NewSource("test")
		life(silent, func(n *node) {
			time.Sleep(time.Minute)
			assert.Len(t, running(), 2)
			assert.False(t, n.Synced())
		})

		life(spoken("b"), func(*node) { time.Sleep(time.Minute) })
		require.Len(t, running(), 1)
		rt.Restart(fake.Reboot)
		life(podconfigfake.NewSource("test"), func(*node) {
			time.Sleep(time.Minute)
			assert.Len(t, running(), 1, "what was taken back stays away")
		})
	})
}

func TestRunOnceTakesTheFirstSnapshotAndItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		once := func(ctx context.Context, rt *fake.Runtime, src *podconfigfake.Source) (kubeletkit.Report, error) {
			agent, err := kubeletkit.New(kubeletkit.Options{
				NodeName: "node", RootDir: t.TempDir(), Runtime: rt, Sources: []podconfig.Source{src},
				Host: &runtime.Host{PodLogsDir: t.TempDir()},
			})
			require.NoError(t, err)
			return agent.RunOnce(ctx)
		}
		stuck := errors.New("no such registry")

		rt, src := fake.New(fake.Options{}), podconfigfake.NewSource("test")
		rt.Script(fake.Target{Pod: "slow"}, fake.Behavior{StartDelay: 10 * time.Second})
		rt.Inject(fake.Fault{Call: "PullImage", Target: fake.Target{Pod: "late"}, Err: stuck})
		slow, late := makePod("slow"), makePod("late")
		src.Set(slow)
		time.AfterFunc(5*time.Second, func() { src.Set(slow, late) })
		report, err := once(t.Context(), rt, src)
		require.NoError(t, err)
		assert.Equal(t, "default/slow: Running\n", report.String())

		rt, src = fake.New(fake.Options{}), podconfigfake.NewSource("test")
		rt.Inject(fake.Fault{Call: "PullImage", Err: stuck})
		src.Set(makePod("a"))
		ctx, cancel := context.WithTimeoutCause(t.Context(), 15*time.Minute, errors.New("the time is up"))
		defer cancel()
		report, err = once(ctx, rt, src)
		require.ErrorContains(t, err, "not every pod got to run: the time is up")
		assert.Contains(t, report.String(), "default/a: Pending")
		assert.Greater(t, len(rt.Calls(fake.Target{})), 5, "it was tried again")
	})
}
