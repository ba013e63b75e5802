package local

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestProblemsBelowTheTable(t *testing.T) {
	dir := t.TempDir()
	assert.Empty(t, ProblemLines(Node{Manifests: dir, Broken: &Problems{}}.Problems()))
	assert.Equal(t, []string{"", "Manifests that cannot be used:", "  " + dir + "/misspelt: " + ErrNoManifests.Error()},
		ProblemLines(Node{Manifests: dir + "/misspelt", Broken: &Problems{}}.Problems()))

	var many Problems
	for i := range 7 {
		many.Note(fmt.Sprintf("/m/%d.yaml", i), errors.New("line 1\n\tline 2\x1b[2J"))
	}
	lines := ProblemLines(Node{Broken: &many}.Problems())
	assert.Len(t, lines, 2+maxProblemLines+1)
	assert.Equal(t, `  /m/0.yaml: line 1 line 2\x1b[2J`, lines[2])
	assert.Equal(t, "  and 2 more; see the command pods", lines[len(lines)-1])
}

func TestProblems(t *testing.T) {
	var p Problems
	require.NoError(t, p.Err())
	p.Note("b", errors.New("two"))
	p.Note("a", errors.New("one"))
	require.EqualError(t, p.Err(), "manifest a: one\nmanifest b: two")
	p.Note("a", nil)
	p.Note("b", nil)
	require.NoError(t, p.Err())
}
