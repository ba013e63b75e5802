//go:build unix

package server_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/kubeletkit/kubeletkit/server"
)

// fewEnv makes this binary a server that may have 64 files open, and opens 16 for each request.
const fewEnv = "SERVER_TEST_FEW_DESCRIPTORS"

func init() {
	if os.Getenv(fewEnv) != "" {
		fmt.Println(serveWithFewDescriptors())
		os.Exit(1)
	}
}

func serveWithFewDescriptors() error {
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 64, Max: 64}); err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	return server.Serve(context.Background(), l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for range 16 {
			f, err := os.Open(os.DevNull)
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			defer f.Close()
		}
	}))
}

// Connections of clients that do nothing leave the agent files to work with, however few it may have.
func TestFewDescriptors(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), fewEnv+"=1")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	addr, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	addr = addr[:len(addr)-1]
	for range 200 {
		c, err := net.Dial("tcp", addr)
		require.NoError(t, err)
		defer c.Close()
	}
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	for range 10 {
		resp, err := client.Get("http://" + addr)
		require.NoError(t, err)
		_ = resp.Body.Close()
		assert.Equal(t, http.StatusOK, resp.StatusCode)
	}
}
