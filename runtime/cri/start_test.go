package cri

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestRemoveTerminationLogRemovesOnlyItsOwn(t *testing.T) {
	dir := t.TempDir()
	const own = "pod/termination-log.a.0123abcd"
	for _, path := range []string{own, "pod/termination-log.b.0123abcd", "pod/termination-log.a.0123",
		"pod/termination-log.a.message1", "pod/0123abcd", "pod/containers/a/0123abcd"} {
		full := filepath.Join(dir, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(full), 0o755))
		require.NoError(t, os.WriteFile(full, nil, 0o600))
		removeTerminationLog("a", "/m", []*criv1.Mount{{ContainerPath: "/m", HostPath: full}})
		if path == own {
			assert.NoFileExists(t, full)
		} else {
			assert.FileExists(t, full)
		}
	}
	removeTerminationLog("a", "/m", nil)
	removeTerminationLog("a", "", nil)
}
