package podsync_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/podworkers"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/syncloop/podsync"
)

// The grace period of a pod ends when it would have ended without a restart of the agent.
func TestTheGracePeriodGoesOnAcrossRestarts(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w := &world{statuses: map[types.UID]v1.PodStatus{}}
		agent := func() *podsync.Syncer {
			s, err := podsync.New(w.deps(), podsync.Options{PodsDir: dir, Host: &runtime.Host{}})
			require.NoError(t, err)
			return s
		}
		kills := func(s *podsync.Syncer, grace int64, want string) {
			t.Helper()
			w.calls, w.killErr = nil, errors.New("cut off") // so that it takes no time
			_ = s.SyncTerminatingPod(t.Context(), makePod(), observed(runtime.ContainerRunning, 0),
				podworkers.Termination{GracePeriod: ptr.To(grace)})
			assert.Equal(t, "kill grace="+want+" spec=true", w.calls[0])
			w.killErr = nil
		}
		orphan := func(s *podsync.Syncer, grace *int64, want string) {
			t.Helper()
			w.calls = nil
			require.NoError(t, s.SyncTerminatingOrphan(t.Context(), &runtime.Pod{PodRef: runtime.RefOf(makePod())},
				observed(runtime.ContainerRunning, 0), grace))
			assert.Equal(t, "kill grace="+want+" spec=false", w.calls[0])
		}
		s := agent()
		kills(s, 60, "60")
		assert.NoDirExists(t, s.PodDir("u1"), "what no agent has started has no directory")
		_, err := s.SyncPod(t.Context(), podworkers.Create, makePod(), observed(runtime.ContainerRunning, 0))
		require.NoError(t, err)

		kills(s, 60, "60")
		time.Sleep(10 * time.Second)
		kills(s, 60, "60") // repeated: the runtime may not have been reached before
		time.Sleep(20500 * time.Millisecond)
		s = agent()
		kills(s, 60, "40")
		time.Sleep(10 * time.Second)
		kills(s, 60, "30")
		orphan(agent(), nil, "-1")
		time.Sleep(5 * time.Second)
		orphan(agent(), nil, "25")
		orphan(agent(), ptr.To[int64](5), "5")
		time.Sleep(time.Minute)
		kills(agent(), 60, "1")

		s = agent()
		_, err = s.SyncPod(t.Context(), podworkers.Create, makePod(), observed(runtime.ContainerRunning, 0))
		require.NoError(t, err)
		kills(agent(), 60, "60")

		require.NoError(t, os.WriteFile(filepath.Join(s.PodDir("u1"), "termination-deadline"), []byte("soon"), 0o600))
		kills(agent(), 60, "60")
		require.NoError(t, os.WriteFile(filepath.Join(s.PodDir("u1"), "termination-deadline"),
			[]byte(time.Now().AddDate(1, 0, 0).Format(time.RFC3339Nano)+" other"), 0o600))
		kills(agent(), 60, "60")
	})
}
