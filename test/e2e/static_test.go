package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// A manifest that is removed and put back without a change is the same pod, which is restarted.
func TestManifestIsPutBack(t *testing.T) {
	t.Parallel()
	s := newSuite(t, AgentOptions{})
	for _, pause := range []time.Duration{0, 5 * time.Millisecond, 100 * time.Millisecond, time.Second, 5 * time.Second} {
		pod := MakePod(fmt.Sprint("back-", pause.Milliseconds()), Main(Sh("c", Forever)))
		pod.Spec.TerminationGracePeriodSeconds = ptr(int64(1))
		s.agent.Put(t, pod)
		before := s.agent.Await(t, pod, within, Running)
		path := filepath.Join(s.agent.Manifests, pod.Name+".yaml")
		manifest, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, os.Remove(path))
		time.Sleep(pause)
		require.NoError(t, os.WriteFile(path, manifest, 0o644))
		after := s.agent.Await(t, pod, within, Running, Restarts("c", 1))
		assert.Equal(t, before.UID, after.UID)
	}
}
