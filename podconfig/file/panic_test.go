package file

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestAPanicIsTheErrorOfItsFile has the logger panic while one of two manifests is
// parsed: the other one's pod is there, and what went wrong is reported of the first.
func TestAPanicIsTheErrorOfItsFile(t *testing.T) {
	dir := t.TempDir()
	const pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: web, image: nginx}]}\n"
	bad := filepath.Join(dir, "bad.yaml")
	require.NoError(t, os.WriteFile(bad, []byte(pod+"unheardOf: 1\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "good.yaml"), []byte(pod), 0o600))
	log := funcr.NewJSON(func(line string) {
		if strings.Contains(line, "not understood") {
			panic("oops")
		}
	}, funcr.Options{})
	s := newState(dir, "edge-7", Options{Lenient: true, Logger: log})
	s.look(t.Context(), time.Now())
	require.Len(t, s.pods(), 1)
	assert.Equal(t, "web-edge-7", s.pods()[0].Name)
	assert.Contains(t, s.problems[bad], "reading it panicked: oops")
}
