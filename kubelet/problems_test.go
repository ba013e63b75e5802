package kubelet

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestProblemsBelowTheTable(t *testing.T) {
	dir := t.TempDir()
	assert.Empty(t, problemLines(node{manifests: dir, broken: &problems{}}.Problems()))
	assert.Equal(t, []string{"", "Manifests that cannot be used:", "  " + dir + "/misspelt: " + errNoManifests.Error()},
		problemLines(node{manifests: dir + "/misspelt", broken: &problems{}}.Problems()))

	var many problems
	for i := range 7 {
		many.note(fmt.Sprintf("/m/%d.yaml", i), errors.New("line 1\n\tline 2\x1b[2J"))
	}
	lines := problemLines(node{broken: &many}.Problems())
	assert.Len(t, lines, 2+maxProblemLines+1)
	assert.Equal(t, `  /m/0.yaml: line 1 line 2\x1b[2J`, lines[2])
	assert.Equal(t, "  and 2 more; see the command pods", lines[len(lines)-1])
}
