package main

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kubeletkit/kubeletkit/kubelet"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The pods of manifests run in memory, and the commands of the program show them.
func TestHollowKubelet(t *testing.T) {
	root, err := os.MkdirTemp("", "hollow") // short: it has sockets
	require.NoError(t, err)
	defer os.RemoveAll(root)
	opts := options()
	defer opts.Runtime.(*fake.Runtime).Close()
	command := func(ctx context.Context, args ...string) (string, error) {
		var out bytes.Buffer
		cmd := kubelet.Command(opts)
		cmd.SetArgs(append(args, "--root-dir", root))
		cmd.SetOut(&out)
		cmd.SetErr(&out)
		err := cmd.ExecuteContext(ctx)
		return out.String(), err
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := command(ctx, "run", "--pod-manifest-path", "../minikubelet/manifests", "--hostname-override=node",
			"--healthz-port=0", "--enable-server=false", "--fail-swap-on=false", "--fail-cgroupv1=false")
		done <- err
	}()
	require.Eventually(t, func() bool {
		pods, err := command(ctx, "pods")
		return err == nil && strings.Contains(pods, "hello-node") && strings.Contains(pods, "Running")
	}, time.Minute, 20*time.Millisecond)
	cancel()
	require.NoError(t, <-done)
}
