package podsync

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// The recorded end of a grace period of 300 years was in the past, so that the containers were
// killed when the agent was restarted.
func TestDeadlineDoesNotOverflow(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "u1"), 0o700))
	const long = 10_000_000_000
	ref := runtime.PodRef{UID: "u1", Namespace: "default", Name: "a"}
	before, after := &Syncer{opts: Options{PodsDir: dir}, id: "before"},
		&Syncer{opts: Options{PodsDir: dir}, id: "after"}
	assert.EqualValues(t, long, before.graceLeft(ref, long))
	assert.Greater(t, after.graceLeft(ref, long), int64(1_000_000_000))
}

// The file with the deadline, with any content. What is left of a grace period is at
// least a second and at most all of it.
func FuzzDeadline(f *testing.F) {
	f.Add([]byte("2026-01-02T03:04:05.000000006Z 3w5e11264sgsf\n"), int64(30))
	f.Add([]byte("9999-12-31T23:59:59Z x"), int64(1))
	f.Add([]byte("0001-01-01T00:00:00Z x y"), int64(1<<62))
	f.Fuzz(func(t *testing.T, data []byte, grace int64) {
		grace = max(grace, 1)
		dir := t.TempDir()
		require.NoError(t, os.Mkdir(filepath.Join(dir, "u1"), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "u1", deadlineFile), data, 0o600))
		s := &Syncer{opts: Options{PodsDir: dir}, id: "this agent"}
		left := s.graceLeft(runtime.PodRef{UID: "u1", Namespace: "default", Name: "a"}, grace)
		assert.GreaterOrEqual(t, left, int64(1))
		assert.LessOrEqual(t, left, grace)
	})
}
