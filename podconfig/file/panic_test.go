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
	var said, told []string
	log := funcr.NewJSON(func(line string) {
		if strings.Contains(line, "not understood") {
			panic("oops")
		}
		said = append(said, line)
	}, funcr.Options{})
	s := newState(dir, "edge-7", Options{Lenient: true, Logger: log, Problem: func(_ string, err error) { told = append(told, err.Error()) }})
	for range 3 {
		s.look(t.Context(), time.Now())
	}
	require.Len(t, s.pods(), 1)
	assert.Equal(t, "web-edge-7", s.pods()[0].Name)
	assert.Equal(t, map[string]string{bad: "reading it panicked, which is a bug of this program: oops"}, s.problems)
	assert.Equal(t, []string{s.problems[bad]}, told, "once for as long as it lasts")
	require.Len(t, said, 1)
	assert.Contains(t, said[0], "panic_test.go", "the log has the stack")
}
