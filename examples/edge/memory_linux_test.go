package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kubeletkit/kubeletkit/runtime/fake"
	"github.com/kubeletkit/kubeletkit/runtime/fake/criserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestLinks asserts that an agent without a cluster does not link what only clusters and metrics need.
func TestLinks(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-tags", "grpcnotrace", ".").Output()
	require.NoError(t, err)
	for dep := range strings.FieldsSeq(string(out)) {
		for _, refused := range []string{"k8s.io/client-go", "k8s.io/component-base",
			"github.com/prometheus/client_golang", "golang.org/x/net/trace"} {
			assert.False(t, strings.HasPrefix(dep, refused), dep)
		}
	}
}

// BenchmarkMemory measures the resident memory of the agent with pods to which nothing happens, on a runtime in memory
// behind a socket: "MB" is all of it, "own-MB" that without the mapped program, which the kernel can take back.
//
//	go test -run '^$' -bench Memory -benchtime 1x ./examples/edge
func BenchmarkMemory(b *testing.B) {
	for _, pods := range []int{0, 100} {
		b.Run(fmt.Sprint(pods), func(b *testing.B) {
			for b.Loop() {
				all, own := measure(b, pods)
				b.ReportMetric(all, "MB")
				b.ReportMetric(own, "own-MB")
			}
		})
	}
}

func measure(b *testing.B, pods int) (all, own float64) {
	dir, err := os.MkdirTemp("", "edge") // short, for the socket in it
	require.NoError(b, err)
	defer os.RemoveAll(dir)
	build := exec.CommandContext(b.Context(), "go", "build", "-tags", "grpcnotrace", "-o", dir+"/edge", ".")
	out, err := build.CombinedOutput()
	require.NoError(b, err, string(out))
	require.NoError(b, os.Mkdir(dir+"/pods", 0o755))
	for i := range pods {
		text := fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {name: pod-%d}, spec: {containers: [{name: main, "+
			"image: \"image:1\"}]}}", i)
		require.NoError(b, os.WriteFile(fmt.Sprintf("%s/pods/%d.yaml", dir, i), []byte(text), 0o600))
	}

	ctx, cancel := context.WithCancel(b.Context())
	listener, err := net.Listen("unix", filepath.Join(dir, "cri.sock"))
	require.NoError(b, err)
	rt := fake.New(fake.Options{})
	served := make(chan error)
	go func() { served <- criserver.Serve(ctx, rt, listener) }()
	agent := exec.CommandContext(ctx, dir+"/edge", "-socket", "unix://"+dir+"/cri.sock", "-manifests", dir+"/pods",
		"-root", dir+"/root")
	require.NoError(b, agent.Start())
	defer func() {
		cancel()
		_ = agent.Wait()
		<-served
		_ = rt.Close()
	}()
	_, err = rt.UntilRunning(b.Context(), fake.Target{}, pods)
	require.NoError(b, err)
	time.Sleep(30 * time.Second) // until it has returned what the start has taken
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", agent.Process.Pid))
	require.NoError(b, err)
	kilobytes := func(field string) float64 {
		_, after, _ := strings.Cut(string(status), field+":")
		var n float64
		_, err := fmt.Sscan(after, &n)
		require.NoError(b, err)
		return n * 1024 / 1e6
	}
	return kilobytes("VmRSS"), kilobytes("RssAnon")
}
