package kubeletkit_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/podconfig"
	podconfigfake "github.com/kubeletkit/kubeletkit/podconfig/fake"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// denying is a runtime that refuses the pod "bad" for good.
type denying struct{ *fake.Runtime }

func (d denying) SyncPod(ctx context.Context, req runtime.PodSync) (runtime.SyncResult, error) {
	if req.Pod.Name == "bad" {
		return runtime.SyncResult{}, &runtime.TerminalError{Reason: "Denied", Message: "no privileged pods here"}
	}
	return d.Runtime.SyncPod(ctx, req)
}

// A runtime, or a wrapper around it, can fail a pod for good: it ends as Failed with the
// reason, and is not tried again.
func TestADeniedPodFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, source := t.TempDir(), podconfigfake.NewSource("test")
		agent, err := kubeletkit.New(kubeletkit.Options{
			NodeName: "node", RootDir: root, PodLogsDir: root + "/logs", Runtime: denying{fake.New(fake.Options{})},
			Sources: []podconfig.Source{source}, Host: &runtime.Host{Hostname: "host"},
		})
		require.NoError(t, err)
		n := &node{Agent: agent, source: source, done: make(chan error, 1)}
		ctx, cancel := context.WithCancel(t.Context())
		n.cancel = cancel
		go func() { n.done <- agent.Run(ctx) }()
		defer n.stop(t)
		source.Set(makePod("bad"), makePod("good"))
		for range 2 {
			pods := n.after(time.Minute)
			bad := pods["bad"].Status
			assert.Equal(t, v1.PodFailed, bad.Phase)
			assert.Equal(t, "Denied", bad.Reason)
			assert.Equal(t, "no privileged pods here", bad.Message)
			assert.Equal(t, v1.PodRunning, pods["good"].Status.Phase)
		}
	})
}
