package runtimetest

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// readLog waits until the log ends with a complete line, and returns the texts of its
// lines. Each line must be in CRI's format: time, stream, tag, text.
func (e *env) readLog(path string) []string {
	e.Helper()
	deadline := time.Now().Add(e.f.Timeout)
	for {
		data, err := os.ReadFile(path)
		if err == nil && bytes.HasSuffix(data, []byte("\n")) {
			var texts []string
			for line := range strings.Lines(string(data)) {
				words := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 4)
				require.Len(e, words, 4, "log line %q", line)
				_, err := time.Parse(time.RFC3339Nano, words[0])
				require.NoError(e, err, "log line %q", line)
				assert.Contains(e, []string{"stdout", "stderr"}, words[1])
				texts = append(texts, words[3])
			}
			return texts
		}
		if time.Now().After(deadline) {
			require.Failf(e, "no log", "%s: %v", path, err)
		}
		time.Sleep(poll)
	}
}

func (e *env) logPath(pod *v1.Pod, container, file string) string {
	return filepath.Join(e.Host.PodLogsDir, runtime.RefOf(pod).LogDirName(), container, file)
}

func testLogs(e *env) {
	pod := e.pod(v1.RestartPolicyNever, e.container("main", e.Print("a word, and another")))
	s := e.drive(pod, "main has exited", func(s *runtime.PodStatus) bool { return exited(s, "main") })
	path := s.Newest("main").LogPath
	assert.Equal(e, e.logPath(pod, "main", "0.log"), path)
	assert.Equal(e, []string{"a word, and another"}, e.readLog(path))

	require.NoError(e, e.Runtime.RemoveContainer(e.ctx, s.Newest("main").ID))
	assert.NoFileExists(e, path, "the log goes with the container")
}

func testLogsOfInstances(e *env) {
	pod := e.pod(v1.RestartPolicyAlways, e.container("main", e.Print("again")))
	e.drive(pod, "the second instance has exited", func(s *runtime.PodStatus) bool {
		return exited(s, "main") && s.Newest("main").RestartCount == 1
	})
	assert.Equal(e, []string{"again"}, e.readLog(e.logPath(pod, "main", "0.log")))
	assert.Equal(e, []string{"again"}, e.readLog(e.logPath(pod, "main", "1.log")))
}

func testEnvironment(e *env) {
	c := e.container("main", e.Print("$(GREETING) from $(WHO)"))
	c.Env = []v1.EnvVar{
		{Name: "WHO", ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{APIVersion: "v1",
			FieldPath: "metadata.name"}}},
		{Name: "GREETING", Value: "hello"},
	}
	pod := e.pod(v1.RestartPolicyNever, c)
	e.drive(pod, "main has exited", func(s *runtime.PodStatus) bool { return exited(s, "main") })
	assert.Equal(e, []string{"hello from " + pod.Name}, e.readLog(e.logPath(pod, "main", "0.log")))
}

func testExec(e *env) {
	pod := e.pod(v1.RestartPolicyNever, e.container("main", e.Sleep))
	id := e.start(pod).Newest("main").ID
	res, err := e.Runtime.Exec(e.ctx, id, e.ExecPrint("hello"), e.f.Timeout)
	require.NoError(e, err)
	assert.Equal(e, "hello", strings.TrimSpace(string(res.Output)))
	assert.Zero(e, res.ExitCode)
	for _, code := range []int32{0, 1, 42} {
		res, err := e.Runtime.Exec(e.ctx, id, e.ExecExit(code), 0)
		require.NoError(e, err, "a command that fails is not an error")
		assert.Equal(e, code, res.ExitCode)
	}
	e.kill(pod)
	_, err = e.Runtime.Exec(e.ctx, id, e.ExecExit(0), e.f.Timeout)
	require.Error(e, err, "in a container that does not run")
}

func testExecTimeout(e *env) {
	pod := e.pod(v1.RestartPolicyNever, e.container("main", e.Sleep))
	id := e.start(pod).Newest("main").ID
	began := time.Now()
	_, err := e.Runtime.Exec(e.ctx, id, e.ExecSleep, time.Second)
	require.ErrorIs(e, err, context.DeadlineExceeded)
	assert.Less(e, time.Since(began), 10*time.Second)

	ctx, cancel := context.WithTimeout(e.ctx, time.Second)
	defer cancel()
	began = time.Now()
	_, err = e.Runtime.Exec(ctx, id, e.ExecSleep, 0)
	require.ErrorIs(e, err, context.DeadlineExceeded)
	assert.Less(e, time.Since(began), 10*time.Second)
	assert.True(e, running(e.status(pod), "main"), "the container is not touched")
}
