package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/apimachinery/pkg/types"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/cri"
	"github.com/kubeletkit/kubeletkit/runtime/runtimetest"
	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// TestRuntimeSuite shows that containerd behind runtime/cri is what the suite says
// a runtime is.
func TestRuntimeSuite(t *testing.T) {
	t.Parallel()
	c := NewCluster(t)
	c.Preload(t, "pause:1", "busybox:1")
	rt, err := cri.Dial(t.Context(), c.Endpoint(), cri.Options{})
	require.NoError(t, err)
	defer rt.Close()
	dir := t.TempDir()
	sh := func(format string, args ...any) []string {
		return []string{"/bin/sh", "-c", fmt.Sprintf(format, args...)}
	}
	network := filepath.Join(c.Dir, "cni", "10-kubeletkit.conflist")
	subject := &runtimetest.Subject{
		Runtime:      rt,
		Host:         &runtime.Host{NodeName: NodeName, Hostname: NodeName, IPs: []string{"192.0.2.1"}, PodLogsDir: filepath.Join(dir, "logs")},
		Dir:          filepath.Join(dir, "pods"),
		Image:        c.Registry.Image("busybox:1"),
		MissingImage: c.Registry.Image("missing:1"),
		Sleep:        sh("%s", Forever),
		Exit: func(after time.Duration, code int32) []string {
			return sh("sleep %.2f; exit %d", after.Seconds(), code)
		},
		Stubborn:   sh("%s", Stubborn),
		Print:      func(text string) []string { return []string{"/bin/echo", text} },
		ExecPrint:  func(text string) []string { return []string{"/bin/echo", "-n", text} },
		ExecExit:   func(code int32) []string { return sh("exit %d", code) },
		ExecSleep:  []string{"/bin/sleep", "600"},
		LosesExits: true,
		Restart: func(absent func()) error {
			c.Kill(t)
			absent()
			c.Start(t)
			return nil
		},
		Watch: func(ctx context.Context, ready chan<- struct{}, changed func(types.UID)) error {
			return watchEvents(ctx, c.Endpoint(), ready, changed)
		},
		NetworkDown: func(down bool) {
			from, to := network, network+".off"
			if !down {
				from, to = to, from
			}
			require.NoError(t, os.Rename(from, to))
		},
	}
	runtimetest.Suite(t, runtimetest.Factory{New: func(*testing.T) *runtimetest.Subject { return subject }, Timeout: time.Minute})
}

// watchEvents reads the runtime's event stream until the context ends.
func watchEvents(ctx context.Context, endpoint string, ready chan<- struct{}, changed func(types.UID)) error {
	conn, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	stream, err := criv1.NewRuntimeServiceClient(conn).GetContainerEvents(ctx, &criv1.GetEventsRequest{})
	if err != nil {
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
