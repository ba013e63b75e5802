package agent_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/prober"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
	"github.com/kubeletkit/kubeletkit/status"
)

// stuck has calls that ignore their context until the channel is closed.
type stuck chan struct{}

func (d stuck) Deliver(context.Context, *v1.Pod, v1.PodStatus) (status.Result, error) {
	<-d
	return status.Result{}, nil
}
func (d stuck) WatchReceiver(context.Context, func(types.UID))               {}
func (d stuck) PodFinished(runtime.PodRef)                                   {}
func (d stuck) PodGone(context.Context, runtime.PodRef, *v1.PodStatus) error { return nil }

func (d stuck) Name() string                              { return "stuck" }
func (d stuck) Run(context.Context, podconfig.Sink) error { <-d; return nil }

type stuckProbe struct{ stuck }

func (d stuckProbe) Probe(_ *v1.Pod, c *v1.Container, kind runtime.ProbeKind) *v1.Probe {
	if kind != runtime.LivenessProbe {
		return nil
	}
	return &v1.Probe{}
}
func (d stuckProbe) Check(context.Context, prober.Target) (prober.Outcome, string, error) {
	<-d.stuck
	return prober.Success, "", nil
}

type stuckRuntime struct {
	wrappedRuntime
	stuck
}

func (d stuckRuntime) SyncPod(context.Context, runtime.PodSync) (runtime.SyncResult, error) {
	<-d.stuck
	return runtime.SyncResult{}, nil
}

// What keeps Run from returning is in the log after some seconds: the part, and the pod.
func TestRunLogsWhatItWaitsFor(t *testing.T) {
	for part, tc := range map[string]struct {
		set  func(o *kubeletkit.Options, d stuck)
		line string // of the part
	}{
		"status manager":    {func(o *kubeletkit.Options, d stuck) { o.StatusSink = d }, `"pod"="default/web`},
		"prober":            {func(o *kubeletkit.Options, d stuck) { o.Prober.Handlers = []prober.Handler{stuckProbe{d}} }, `"pod"="default/web`},
		"pod workers":       {func(o *kubeletkit.Options, d stuck) { o.Runtime = stuckRuntime{wrappedRuntime{o.Runtime}, d} }, `"pod"="default/web`},
		"pod configuration": {func(o *kubeletkit.Options, d stuck) { o.Sources = append(o.Sources, d) }, `"source"="stuck"`},
	} {
		t.Run(part, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var lines []string
				hold := make(stuck)
				n := startNodeWith(t, dir, fake.New(fake.Options{}), func(o *kubeletkit.Options) {
					tc.set(o, hold)
					o.Observe.Logger = funcr.New(func(_, args string) {
						mu.Lock()
						defer mu.Unlock()
						if strings.Contains(args, "cannot stop") {
							lines = append(lines, args)
						}
					}, funcr.Options{})
				})
				n.source.Set(makePod("web"))
				n.after(10 * time.Second)
				n.cancel()
				time.Sleep(10 * time.Second)
				close(hold)
				require.NoError(t, <-n.done)
				require.Len(t, lines, 2)
				assert.Contains(t, lines[0], tc.line)
				assert.Contains(t, lines[1], `"parts"=["`+part+`"]`)
			})
		})
	}
}
