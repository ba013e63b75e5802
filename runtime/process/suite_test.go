//go:build linux

package process

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/cri"
	"github.com/kubeletkit/kubeletkit/runtime/runtimetest"
)

// TestSuite runs the conformance suite of runtimes with the server behind runtime/cri.
func TestSuite(t *testing.T) {
	t.Parallel()
	runtimetest.Suite(t, runtimetest.Factory{New: newSubject, Parallel: true})
}

// newSubject starts a server for one test of the suite.
func newSubject(t *testing.T) *runtimetest.Subject {
	n := startNode(t, Options{})
	rt, err := cri.Dial(t.Context(), n.server.Endpoint(), cri.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = rt.Close() })
	sh := func(format string, args ...any) []string { return []string{"sh", "-c", fmt.Sprintf(format, args...)} }
	return &runtimetest.Subject{
		Runtime: rt,
		Host: &runtime.Host{NodeName: "node", Hostname: "node", IPs: []string{"127.0.0.1"},
			PodLogsDir: filepath.Join(n.opts.Dir, "logs")},
		Dir:         filepath.Join(n.opts.Dir, "pod-dirs"),
		Image:       "host",
		HostNetwork: true,
		Sleep:       sh("trap 'exit 0' TERM; echo ready; while :; do sleep 0.02; done"),
		Exit: func(after time.Duration, code int32) []string {
			return sh("sleep %.2f; exit %d", after.Seconds(), code)
		},
		Stubborn:  sh("trap '' TERM; echo ready; while :; do sleep 0.02; done"),
		SaysReady: true,
		Print:     func(text string) []string { return []string{"echo", text} },
		ExecPrint: func(text string) []string { return []string{"printf", "%s", text} },
		ExecExit:  func(code int32) []string { return sh("exit %d", code) },
		ExecSleep: []string{"sleep", "600"},
		Restart: func(absent func()) error {
			n.stop()
			absent()
			n.start()
			return nil
		},
		Watch: n.watch,
	}
}

// watch reads the event stream until the context ends.
func (n *node) watch(ctx context.Context, ready chan<- struct{}, changed func(types.UID)) error {
	stream, err := n.rs.GetContainerEvents(ctx, &criv1.GetEventsRequest{})
	if err != nil {
		return err
	}
	if _, err := stream.Header(); err != nil {
		return err
	}
	close(ready)
	for {
		event, err := stream.Recv()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return errors.Join(errors.New("reading the event stream"), err)
		}
		changed(types.UID(event.GetPodSandboxStatus().GetMetadata().GetUid()))
	}
}
