package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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
	// Its process is the first of its namespace, on which SIGTERM has no effect before there is a
	// handler for it.
	sh := func(format string, args ...any) []string {
		return []string{"/bin/sh", "-c", fmt.Sprintf(format, args...)}
	}
	network := filepath.Join(c.Dir, "cni", "10-kubeletkit.conflist")
	subject := &runtimetest.Subject{
		Runtime: rt,
		Host: &runtime.Host{NodeName: NodeName, Hostname: NodeName, IPs: []string{"192.0.2.1"},
			PodLogsDir: filepath.Join(dir, "logs")},
		Dir:          filepath.Join(dir, "pods"),
		Image:        c.Registry.Image("busybox:1"),
		MissingImage: c.Registry.Image("missing:1"),
		Sleep:        sh("%s", strings.Replace(Forever, ";", "; echo ready;", 1)),
		Exit: func(after time.Duration, code int32) []string {
			return sh("sleep %.2f; exit %d", after.Seconds(), code)
		},
		Stubborn:    sh("%s", strings.Replace(Stubborn, ";", "; echo ready;", 1)),
		SaysReady:   true,
		Print:       func(text string) []string { return []string{"/bin/echo", text} },
		ExecPrint:   func(text string) []string { return []string{"/bin/echo", "-n", text} },
		ExecExit:    func(code int32) []string { return sh("exit %d", code) },
		ExecSleep:   []string{"/bin/sleep", "600"},
		LosesExits:  true,
		Unannounced: true,
		Restart: func(absent func()) error {
			c.Kill(t)
			absent()
			c.Start(t)
			return nil
		},
		NetworkDown: func(down bool) {
			from, to := network, network+".off"
			if !down {
				from, to = to, from
			}
			require.NoError(t, os.Rename(from, to))
			Eventually(t, within, "containerd has noticed", func() error {
				if err := c.Ready(); (err != nil) != down {
					return fmt.Errorf("network down: %v, but: %v", down, err)
				}
				return nil
			})
		},
	}
	runtimetest.Suite(t, runtimetest.Factory{New: func(*testing.T) *runtimetest.Subject { return subject },
		Timeout: time.Minute})
}
