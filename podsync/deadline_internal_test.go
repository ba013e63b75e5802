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
	before, after := &Syncer{opts: Options{PodsDir: dir}, id: "before"}, &Syncer{opts: Options{PodsDir: dir}, id: "after"}
	assert.EqualValues(t, long, before.graceLeft(ref, long))
	assert.Greater(t, after.graceLeft(ref, long), int64(1_000_000_000))
}
