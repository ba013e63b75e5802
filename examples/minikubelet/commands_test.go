package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/server"
)

// node is an agent with the pod web-n1, of which container "a" runs.
type node struct {
	log  string
	exec func(cmd []string) (runtime.ExecResult, error)
}

func (n *node) Healthy() error { return nil }

func (n *node) Pods() []*v1.Pod {
	return []*v1.Pod{pod(v1.PodRunning, running("a", true))}
}

func (n *node) RuntimeStatus(types.UID) (*runtime.PodStatus, bool) {
	c := runtime.ContainerStatus{LogPath: n.log}
	c.Name, c.ID, c.State = "a", runtime.ContainerID{Type: "t", ID: "1"}, runtime.ContainerRunning
	return &runtime.PodStatus{Containers: []runtime.ContainerStatus{c}}, true
}

func (n *node) Exec(_ context.Context, _ runtime.ContainerID, cmd []string, _ time.Duration) (runtime.ExecResult, error) {
	return n.exec(cmd)
}

func TestCommands(t *testing.T) {
	root := t.TempDir()
	n := &node{log: filepath.Join(root, "0.log"), exec: func(cmd []string) (runtime.ExecResult, error) {
		switch cmd[0] {
		case "fail":
			return runtime.ExecResult{Output: []byte("failed\n"), ExitCode: 3}, nil
		case "none":
			return runtime.ExecResult{}, errors.New("no such program")
		}
		return runtime.ExecResult{Output: []byte(strings.Join(cmd, "|"))}, nil
	}}
	write(t, n.log, "2026-01-02T03:04:05Z stdout F one\n2026-01-02T03:04:06Z stderr F two\n")
	l, err := server.ListenUnix(t.Context(), filepath.Join(root, socketName))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx, l, server.Control(n, n, server.Options{})) }()
	defer func() { cancel(); require.NoError(t, <-served) }()

	const note = "Container \"a\" is taken out of a, b, setup, proxy; name another with -c.\n"
	for _, tt := range []struct {
		name        string
		args        []string
		out, errOut string // parts, "" for nothing
		err         string
	}{
		{"pods", []string{"pods"}, "web-n1", "", ""},
		{"pods of a namespace", []string{"pods", "-n", "other"}, "", "No pods found.\n", ""},
		{"pods with an argument", []string{"pods", "x"}, "", "", `pods: unexpected argument "x"; see minikubelet pods --help`},
		{"describe", []string{"describe", "web"}, "QoS", "", ""},
		{"describe nothing", []string{"describe"}, "", "", "want the name of one pod"},
		{"unknown pod", []string{"describe", "db"}, "", "", `there is no pod "db" in namespace "default"; there are default/web-n1`},
		{"logs", []string{"logs", "web"}, "one\ntwo\n", note, ""},
		{"logs, all flags", []string{"logs", "web-n1", "-c", "a", "--tail=1", "--timestamps", "-n", "default"}, "2026-01-02T03:04:06Z two\n", "", ""},
		{"logs of before", []string{"logs", "web", "-c", "a", "-p"}, "", "", `the agent says: previous terminated container "a" in pod "web-n1" not found`},
		{"logs of an unknown container", []string{"logs", "web", "-c", "x"}, "", "", "it has a, b, setup, proxy"},
		{"logs of one that does not run", []string{"logs", "web", "-c", "b"}, "", "", `container "b" in pod "web-n1" is waiting to start`},
		{"exec", []string{"exec", "web", "-c", "a", "--", "echo", "-n", "a b"}, "echo|-n|a b", "", ""},
		{"exec that fails", []string{"exec", "web", "-c", "a", "--", "fail"}, "failed\n", "", "exit code 3"},
		{"exec of nothing", []string{"exec", "web", "-c", "a", "--", "none"}, "", "", "the agent says: no such program"},
		{"exec without a dash", []string{"exec", "web", "ls"}, "", "", "want the name of one pod, --, and a command"},
		{"unknown flag", []string{"pods", "--tail=1"}, "", "", "unknown flag: --tail"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out, errOut strings.Builder
			require.True(t, isCommand(tt.args))
			args := append([]string{tt.args[0], "--root-dir", root}, tt.args[1:]...)
			err := runCommand(t.Context(), args, &out, &errOut)
			if tt.err == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, tt.err)
			}
			if tt.name == "describe" || tt.name == "pods" {
				assert.Contains(t, out.String(), "web-n1")
			} else {
				assert.Equal(t, tt.out, out.String())
			}
			assert.Equal(t, tt.errOut, errOut.String())
		})
	}
	var code exitCode
	require.ErrorAs(t, runCommand(t.Context(), []string{"exec", "--root-dir", root, "web", "--", "fail"}, &strings.Builder{}, &strings.Builder{}), &code)
	assert.Equal(t, exitCode(3), code)

	// What is followed ends with a signal, and that is no error.
	lctx, stop := context.WithCancel(t.Context())
	out := &stopper{stop: stop}
	require.NoError(t, runCommand(lctx, []string{"logs", "--root-dir", root, "-f", "web"}, out, &strings.Builder{}))
	assert.Equal(t, "one\ntwo\n", out.String())
}

// stopper calls stop when something is written.
type stopper struct {
	strings.Builder
	stop func()
}

func (s *stopper) Write(p []byte) (int, error) {
	defer s.stop()
	return s.Builder.Write(p)
}

func TestCommandsWithoutAnAgent(t *testing.T) {
	root := t.TempDir()
	err := runCommand(t.Context(), []string{"pods", "--root-dir", root}, os.Stdout, os.Stderr)
	require.ErrorContains(t, err, "no agent answers on "+filepath.Join(root, socketName))
	require.ErrorIs(t, err, os.ErrNotExist)
	var usage strings.Builder
	require.ErrorIs(t, runCommand(t.Context(), []string{"logs", "--help"}, os.Stdout, &usage), pflag.ErrHelp)
	assert.Contains(t, usage.String(), "--previous")
	assert.False(t, isCommand([]string{"--runonce"}))
	assert.False(t, isCommand(nil))
}
