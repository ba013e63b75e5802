package flow_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/internal/flow"
)

type metrics interface {
	Counted(n int)
	Failed(err error)
}

type counter struct{ n int }

func (c *counter) Counted(n int)    { c.n += n }
func (c *counter) Failed(err error) { panic(err) }

// A panic does not pass, and is logged once for each method.
func TestGuard(t *testing.T) {
	var lines []string
	log := funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{})
	c := &counter{}
	g := flow.Guard[metrics](c, log)
	for range 2 {
		g.Call("Counted", func(m metrics) { m.Counted(2) })
		g.Call("Failed", func(m metrics) { m.Failed(errors.New("broken")) })
	}
	assert.Equal(t, 4, c.n)
	require.Len(t, lines, 1)
	assert.True(t, strings.Contains(lines[0], `"callback"="Metrics.Failed"`), lines[0])

	broken := flow.Guard[metrics](struct{ metrics }{}, log)
	for range 2 {
		broken.Call("Counted", func(m metrics) { m.Counted(1) })
		broken.Call("Failed", func(m metrics) { m.Failed(nil) })
	}
	assert.Len(t, lines, 3)
}

func TestGuardOfNothing(t *testing.T) {
	never := func(metrics) { t.Error("called") }
	flow.Guard[metrics](nil, logr.Discard()).Call("Counted", never)
	new(flow.Guarded[metrics]).Call("Counted", never)
}
