package flow_test

import (
	"testing"

	"github.com/go-logr/logr"

	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/internal/flow/flowtest"
)

type metrics interface {
	Counted(n int)
	Failed(err error)
}

type guarded struct {
	metrics
	*flow.Guard
}

func (g guarded) Counted(n int) {
	defer g.Recover("Counted")
	g.metrics.Counted(n)
}

func (g guarded) Failed(err error) {
	defer g.Recover("Failed")
	g.metrics.Failed(err)
}

func Test(t *testing.T) {
	flowtest.Guard(t, metrics(struct{ metrics }{}), func(m metrics, log logr.Logger) metrics { return guarded{m, flow.NewGuard(log)} })
}
