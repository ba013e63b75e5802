package cpus_test

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"github.com/kubeletkit/kubeletkit/node/internal/machines"
	"github.com/kubeletkit/kubeletkit/node/placement/cpus"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// foreign is a checkpoint for the machine xeon-2n, in which one pod has CPUs that the machine does not have.
func foreign() cpus.Checkpoint {
	return cpus.Checkpoint{Policy: "static", Shared: cpuset.New(0), Exclusive: cpus.Assignments{
		"fits": {"main": cpuset.New(1, 2)}, "larger": {"main": cpuset.New(14, 15, 16)}, "away": {"main": cpuset.New(20, 21)},
	}}
}

// While the checkpoint does not go with the machine, what runs goes on, nothing is assigned, others are kept off the
// CPUs in it, and the file stays as it is; until the pods whose CPUs do not go with the machine have ended.
func TestSuspended(t *testing.T) {
	path := checkpoint(t, foreign())
	saved, err := os.ReadFile(path)
	require.NoError(t, err)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		rt := &setter{}
		m := newManager(t, "xeon-2n", path, rt, cpus.Options{ResetHint: "the flag is --so"})
		withDirs(t, m, "fits", "larger", "away", "other")
		done := make(chan error)
		go func() { done <- m.Run(ctx) }()
		stateErr := (*cpus.StateError)(nil)
		require.ErrorAs(t, m.Restore(), &stateErr)
		assert.Equal(t, []types.UID{"away", "larger"}, stateErr.Pods)
		assert.ErrorContains(t, stateErr, "; the flag is --so")

		fits, larger, away, other, young := guaranteed("fits", 2), guaranteed("larger", 3), guaranteed("away", 2),
			guaranteed("other", 2), guaranteed("young", 1)
		require.ErrorAs(t, m.Allocate(young, &young.Spec.Containers[0], noHint), &stateErr)
		assert.Nil(t, m.Hints(young, nil))
		allocate(t, m, fits, larger, away, other) // run already
		shared := burstable("shared")
		assert.Equal(t, "0,3-13", edit(t, m, shared).CPUSet)
		assert.Equal(t, runtime.ContainerEdits{CPUSet: "1-2", NoCPUQuota: true}, edit(t, m, fits))
		assert.Equal(t, runtime.ContainerEdits{CPUSet: "14-15", NoCPUQuota: true}, edit(t, m, larger),
			"what there is of its CPUs")
		assert.Equal(t, "0,3-13", edit(t, m, other).CPUSet, "it has no CPUs in the checkpoint")
		_, err := m.EditContainer(t.Context(), away, &away.Spec.Containers[0])
		require.ErrorContains(t, err, "no CPUs that are online")
		assert.Equal(t, "1-2", m.Exclusive("fits", "main").String())
		assert.Empty(t, m.Exclusive("larger", "main").List(), "it is not managed")
		assert.True(t, m.HasExclusive("larger"), "no limit is enforced, as before")

		require.NoError(t, m.Running(ctx, larger, status(larger, "l", runtime.ContainerRunning)))
		require.NoError(t, m.Running(ctx, shared, status(shared, "s", runtime.ContainerRunning)))
		require.NoError(t, m.Running(ctx, away, status(away, "a", runtime.ContainerRunning)))
		synctest.Wait()
		assert.Empty(t, rt.of("l")+rt.of("a"), "they are left as they are")
		require.NoError(t, prepare(t, m, fits))
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.Equal(t, string(saved), string(data))

		end(t, m, larger)
		synctest.Wait()
		assert.Equal(t, "0,3-15", rt.of("s"))
		require.ErrorAs(t, m.Restore(), &stateErr)
		end(t, m, away)
		require.NoError(t, m.Restore())
		allocate(t, m, young)
		assert.Equal(t, "1-2", m.Exclusive("fits", "main").String())
		assert.Equal(t, "3", m.Exclusive("young", "main").String())
		assert.NotEmpty(t, edit(t, m, other).CPUSet, "it was admitted without CPUs of its own")
		synctest.Wait()
		data, err = os.ReadFile(path)
		require.NoError(t, err)
		assert.Contains(t, string(data), "fits")
		assert.NotContains(t, string(data), "larger")
		cancel()
		require.NoError(t, <-done)
	})
}

// After a reboot, nothing of the checkpoint runs: what does not go with the machine is dropped.
func TestNothingRuns(t *testing.T) {
	for _, runs := range []bool{false, true} {
		m := newManager(t, "xeon-2n", checkpoint(t, foreign()), &setter{},
			cpus.Options{ListPods: listing(runs, "away")})
		withDirs(t, m, "fits", "larger", "away")
		problem, dropped := m.State()
		require.ErrorAs(t, problem, new(*cpus.StateError))
		assert.Equal(t, !runs, dropped)
		assert.Equal(t, runs, m.Restore() != nil)
		assert.Equal(t, "1-2", m.Exclusive("fits", "main").String(), "what is right is kept")
		assert.Equal(t, runs, m.HasExclusive("larger"))
	}
}

// listing is a runtime in which the pod runs, or another one.
func listing(runs bool, uid types.UID) func() ([]*runtime.Pod, error) {
	if !runs {
		uid = "another"
	}
	return func() ([]*runtime.Pod, error) {
		return []*runtime.Pod{{PodRef: runtime.PodRef{UID: uid},
			Sandboxes: []runtime.Sandbox{{State: runtime.SandboxReady}}}}, nil
	}
}

// With a checkpoint that cannot be read, it is not known which CPUs are exclusive: the manager sets none.
func TestUnreadableCheckpoint(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	require.NoError(t, os.WriteFile(path, []byte("{"), 0o600))
	for _, leave := range []bool{false, true} {
		m := withDirs(t, newManager(t, "xeon-2n", path, &setter{}, cpus.Options{Leave: leave}), "old")
		stateErr := (*cpus.StateError)(nil)
		require.ErrorAs(t, m.Restore(), &stateErr)
		assert.Empty(t, stateErr.Pods)
		young, old := guaranteed("young", 1), guaranteed("old", 1)
		assert.Equal(t, leave, m.Allocate(young, &young.Spec.Containers[0], noHint) == nil)
		allocate(t, m, old)
		for _, p := range []string{"old", "b"} {
			assert.Equal(t, runtime.ContainerEdits{}, edit(t, m, guaranteed(p, 1)))
		}
		end(t, m, old)
		require.Error(t, m.Restore(), "until the next start")
		require.NoError(t, prepare(t, m, young))
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.Equal(t, "{", string(data))
		m = newManager(t, "xeon-2n", path, &setter{}, cpus.Options{Leave: leave, Reset: true})
		require.NoError(t, m.Restore())
		assert.Equal(t, "0-15", m.Shared().String())
	}
}

// A checkpoint that the disk does not return is not taken for one that does not fit: it is not dropped.
func TestUnreadableDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	require.NoError(t, os.Symlink(path, path))
	m := newManager(t, "xeon-2n", path, &setter{}, cpus.Options{Reset: true})
	require.ErrorIs(t, m.Restore(), syscall.ELOOP)
	require.ErrorIs(t, m.Join(on{}), syscall.ELOOP)
	_, err := cpus.StaticLeft(path)
	require.ErrorIs(t, err, syscall.ELOOP)
	_, err = os.Lstat(path)
	require.NoError(t, err)
}

// With the policy none, a checkpoint of which nothing is left or nothing runs is removed, and others stay. That of
// kubelet's policy none does.
func TestLeaveDrops(t *testing.T) {
	for name, tc := range map[string]struct {
		opts    cpus.Options
		policy  string
		dirs    []string
		dropped bool
	}{
		"nothing is left": {cpus.Options{}, "static", nil, true},
		"nothing runs":    {cpus.Options{ListPods: listing(false, "fits")}, "static", []string{"fits"}, true},
		"it runs":         {cpus.Options{ListPods: listing(true, "fits")}, "static", []string{"fits"}, false},
		"reset":           {cpus.Options{Reset: true}, "static", []string{"fits"}, true},
		"none":            {cpus.Options{}, "none", nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			state := foreign()
			state.Policy = tc.policy
			if tc.policy == "none" {
				state.Exclusive = nil
			}
			path := checkpoint(t, state)
			tc.opts.Leave = true
			synctest.Test(t, func(t *testing.T) {
				m, err := cpus.New(machines.Read(t, "xeon-2n"), path, &setter{}, tc.opts)
				require.NoError(t, err)
				withDirs(t, m, tc.dirs...)
				_, dropped := m.State()
				assert.Equal(t, tc.dropped, dropped)
				assert.FileExists(t, path, "until Run")
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error)
				go func() { done <- m.Run(ctx) }()
				synctest.Wait()
				if tc.dropped {
					assert.NoFileExists(t, path)
					assert.Equal(t, runtime.ContainerEdits{}, edit(t, m, burstable("b")), "as without a manager")
				} else {
					assert.FileExists(t, path)
				}
				cancel()
				require.NoError(t, <-done)
			})
		})
	}
}

// With the policy none, too, the CPUs of a pod that is gone without an end are given back.
func TestLeaveReclaims(t *testing.T) {
	m := newManager(t, "xeon-2n", checkpoint(t, foreign()), &setter{}, cpus.Options{Leave: true})
	withDirs(t, m, "fits", "away", "young")
	require.NoError(t, m.Restore())
	allocate(t, m, guaranteed("young", 2))
	assert.Equal(t, "0,3-15", m.Shared().String())
}

// With the policy none no pod is refused, an assignment without a CPU that is online keeps no container from starting,
// and the end of any pod takes back what is gone.
func TestLeaveRefusesNothing(t *testing.T) {
	gone := map[types.UID]bool{}
	m := newManager(t, "xeon-2n", checkpoint(t, foreign()), &setter{}, cpus.Options{Leave: true})
	require.NoError(t, m.Join(on{gone: gone}))
	require.NoError(t, m.Restore())
	young, away := guaranteed("young", 2), guaranteed("away", 2)
	assert.True(t, m.HasAll(young, &young.Spec.Containers[0]))
	allocate(t, m, away)
	assert.Equal(t, runtime.ContainerEdits{CPUSet: "0,3-13"}, edit(t, m, away))
	gone["away"] = true // this agent has admitted it, and takes its CPUs back at its end
	gone["fits"] = true
	end(t, m, guaranteed("larger", 3))
	assert.Equal(t, "0-15", m.Shared().String())
	assert.True(t, m.HasExclusive("away"))
}

// While the manager is suspended, a pod that runs counts as one that has its CPUs: no policy of package topology ends
// it.
func TestHeldPodsHold(t *testing.T) {
	m := newManager(t, "xeon-2n", checkpoint(t, foreign()), &setter{}, cpus.Options{})
	withDirs(t, m, "fits", "larger", "away", "runs")
	require.ErrorAs(t, m.Restore(), new(*cpus.StateError))
	for uid, want := range map[string]bool{"fits": true, "larger": true, "runs": true, "young": false} {
		p := guaranteed(uid, 2)
		assert.Equal(t, want, m.HasAll(p, &p.Spec.Containers[0]), uid)
	}
}

// An agent with the policy none keeps containers off the CPUs of the checkpoint, until it is not needed any more.
func TestLeave(t *testing.T) {
	path := checkpoint(t, foreign())
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		rt := &setter{}
		m, err := cpus.New(machines.Read(t, "xeon-2n"), path, rt, cpus.Options{Leave: true})
		require.NoError(t, err, "no CPU is reserved")
		require.NoError(t, m.Restore())
		done := make(chan error)
		go func() { done <- m.Run(ctx) }()
		fits, larger, young := guaranteed("fits", 2), guaranteed("larger", 3), guaranteed("young", 2)
		allocate(t, m, fits, larger, young)
		assert.False(t, m.HasExclusive("young"))
		assert.Equal(t, runtime.ContainerEdits{CPUSet: "0,3-13"}, edit(t, m, young))
		assert.Equal(t, runtime.ContainerEdits{CPUSet: "1-2", NoCPUQuota: true}, edit(t, m, fits))
		require.NoError(t, m.Running(ctx, young, status(young, "y", runtime.ContainerRunning)))
		end(t, m, larger)
		end(t, m, guaranteed("away", 2))
		synctest.Wait()
		assert.FileExists(t, path)
		assert.Equal(t, "0,3-15", rt.of("y"))
		end(t, m, fits)
		synctest.Wait()
		assert.NoFileExists(t, path)
		assert.Equal(t, "0-15", rt.of("y"))
		cancel()
		require.NoError(t, <-done)
	})
}
