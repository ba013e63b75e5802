//go:build unix

package credentials

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	configv1 "k8s.io/kubelet/config/v1"

	"github.com/kubeletkit/kubeletkit/internal/safefile"
	"github.com/kubeletkit/kubeletkit/runtime"
)

const response = `{"apiVersion":"credentialprovider.kubelet.k8s.io/v1","kind":"CredentialProviderResponse","cacheKeyType":"Image","auth":{"*.example.com":{"username":"u","password":"hush"}}}`

// script makes a plugin that is a shell script.
func script(t *testing.T, text string) execution {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "test"), []byte("#!/bin/sh\n"+text+"\n"), 0o755))
	p := validProvider()
	return execution{reader: &safefile.Reader{}, binDir: dir, provider: &p, timeout: time.Minute}
}

func TestExecution(t *testing.T) {
	t.Setenv("CREDENTIALS_INHERITED", "inherited")
	t.Setenv("CREDENTIALS_REPLACED", "old")
	e := script(t, `cat; echo "$1 $2 $CREDENTIALS_INHERITED $CREDENTIALS_REPLACED $(pwd)"; echo of no use >&2`)
	e.provider.Args = []string{"a b", "$HOME"}
	e.provider.Env = []configv1.ExecEnvVar{{Name: "CREDENTIALS_REPLACED", Value: "new"}}
	input, err := encodeRequest(e.provider.APIVersion, "r.example.com/app", "token", map[string]string{"a": "b"})
	require.NoError(t, err)
	e.input = input
	stdout, stderr, err := e.run(t.Context())
	require.NoError(t, err)
	wd, err := os.Getwd()
	require.NoError(t, err)
	assert.Equal(t,
		`{"kind":"CredentialProviderRequest","apiVersion":"credentialprovider.kubelet.k8s.io/v1","image":"r.example.com/app","serviceAccountToken":"token","serviceAccountAnnotations":{"a":"b"}}`+
			"\na b $HOME inherited new "+wd+"\n", string(stdout))
	assert.Equal(t, "of no use\n", stderr)
}

func TestExecutionsThatFail(t *testing.T) {
	for name, tt := range map[string]struct{ script, want, stderr string }{
		"exit code":       {script: "echo broken >&2; exit 3", want: "exit status 3", stderr: "broken\n"},
		"signal":          {script: "kill -9 $$", want: "signal: killed"},
		"no shell":        {script: "\n", want: ""},
		"endless output":  {script: "trap '' PIPE; while :; do echo xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx 2>/dev/null; done", want: "its output has more than 1048576 bytes"},
		"no input":        {script: "exec 0<&-; echo ok", want: ""},
		"too much errors": {script: "head -c 200000 /dev/zero | tr '\\0' x >&2; exit 1", want: "exit status 1", stderr: strings.Repeat("x", keptErrors)},
	} {
		t.Run(name, func(t *testing.T) {
			e := script(t, tt.script)
			e.input = make([]byte, 300_000)
			_, stderr, err := e.run(t.Context())
			if tt.want == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, tt.want)
			assert.Equal(t, tt.stderr, stderr)
		})
	}
	e := script(t, "")
	e.provider.Name = "absent"
	_, _, err := e.run(t.Context())
	require.EqualError(t, err, "it cannot be executed: no such file or directory")
	require.NoError(t, os.WriteFile(filepath.Join(e.binDir, "absent"), nil, 0o644))
	_, _, err = e.run(t.Context())
	require.EqualError(t, err, "it cannot be executed: permission denied")
	require.NoError(t, os.WriteFile(filepath.Join(e.binDir, "test"), []byte("#!/absent/shell\n"), 0o755))
	e.provider.Name = "test"
	_, _, err = e.run(t.Context())
	require.EqualError(t, err, "it cannot be executed: no such file or directory")
}

// A plugin that hangs is killed with its children, whether time or the caller ends it.
func TestHangingPlugin(t *testing.T) {
	for _, name := range []string{"timeout", "cancelled"} {
		t.Run(name, func(t *testing.T) {
			e := script(t, `trap '' TERM; sleep 300 & echo $$ $! > "$0.new"; mv "$0.new" "$0.pids"; wait; wait`)
			pids := filepath.Join(e.binDir, "test.pids")
			begun := func() bool { _, err := os.Stat(pids); return err == nil }
			if name == "timeout" {
				for e.timeout = 250 * time.Millisecond; !begun(); e.timeout *= 2 {
					// a slow machine kills it before it begins
					_, _, err := e.run(t.Context())
					require.EqualError(t, err, fmt.Sprint("it was killed after ", e.timeout))
				}
			} else {
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				ended := make(chan error, 1)
				go func() {
					_, _, err := e.run(ctx)
					ended <- err
				}()
				require.Eventually(t, begun, 30*time.Second, 5*time.Millisecond)
				cancel(errors.New("the pod is gone"))
				require.EqualError(t, <-ended, "context canceled: the pod is gone")
			}
			data, err := os.ReadFile(pids)
			require.NoError(t, err)
			list := strings.Fields(string(data))
			require.Len(t, list, 2)
			for _, text := range list {
				pid, err := strconv.Atoi(text)
				require.NoError(t, err)
				assert.Eventually(t, func() bool { return dead(pid) }, 30*time.Second, 10*time.Millisecond,
					"process %d", pid)
			}
		})
	}
}

// dead reports whether a process does not run: it is gone, or nobody has waited for it yet.
func dead(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return true
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	_, after, _ := strings.Cut(string(stat), ") ")
	return err == nil && strings.HasPrefix(after, "Z")
}

// A child that holds the output does not delay an answer that is complete.
func TestPluginLeavesAChild(t *testing.T) {
	e := script(t, `sleep 20 & echo $! >&2; echo done`)
	began := time.Now()
	stdout, stderr, err := e.run(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "done\n", string(stdout))
	assert.Less(t, time.Since(began), 15*time.Second)
	pid, err := strconv.Atoi(strings.TrimSpace(stderr))
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL), "it is left alone")
}

// A real plugin from end to end: its answer is cached, its failures are logged without what they must not have.
func TestScriptAsPlugin(t *testing.T) {
	e := script(t, `echo x >> "$0.runs"
request=$(cat)
case "$request" in
*bad.example.com*) echo "cannot log in with hush-token" >&2; exit 1;;
*kind.example.com*) echo '{"kind":"Secret","apiVersion":"v1"}';;
*) echo '`+response+`';;
esac`)
	var lines []string
	log := funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{})
	p, err := NewPlugins(Options{Config: Config{Providers: []configv1.CredentialProvider{validProvider()}},
		BinDir: e.binDir, Observer: runtime.Observer{Logger: log}})
	require.NoError(t, err)
	runs := func() int {
		data, _ := os.ReadFile(filepath.Join(e.binDir, "test.runs"))
		return len(data) / 2
	}
	for range 2 {
		list, err := p.Credentials(t.Context(), Request{Image: "r.example.com/app"})
		require.NoError(t, err)
		assert.Equal(t, []Credential{{Username: "u", Password: "hush"}}, list)
		assert.Equal(t, 1, runs())
	}
	list, err := p.Credentials(t.Context(), Request{Image: "another.registry.io/app"})
	require.NoError(t, err)
	assert.Empty(t, list)
	assert.Equal(t, 1, runs())
	assert.Empty(t, lines)

	_, err = p.Credentials(t.Context(), Request{Image: "bad.example.com/app"})
	require.EqualError(t, err, `credential provider "test": exit status 1`)
	require.Len(t, lines, 1)
	assert.Contains(t, lines[0], `"provider"="test" "image"="bad.example.com/app"`)
	assert.Contains(t, lines[0], `"stderr"="cannot log in with hush-token"`)
	_, err = p.Credentials(t.Context(), Request{Image: "kind.example.com/app"})
	require.EqualError(t, err,
		`credential provider "test": its output has the kind "Secret" of "v1": must be CredentialProviderResponse of credentialprovider.kubelet.k8s.io/v1`)
}
