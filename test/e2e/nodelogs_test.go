package e2e

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// kubectl logs with every flag, through the API server and the port of the node.
func TestKubectlLogs(t *testing.T) {
	t.Parallel()
	s := newNodeSuite(t, AgentOptions{Config: map[string]any{"enableSystemLogQuery": true}, Env: journalOfTest(t)})
	s.start(t)
	ns := s.plane.Namespace(t, "logs")
	logs := func(args ...string) string {
		t.Helper()
		return s.plane.Kubectl(t, append([]string{"logs", "-n", ns}, args...)...)
	}
	refused := func(args ...string) string {
		t.Helper()
		_, err := s.plane.TryKubectl(t, "", append([]string{"logs", "-n", ns}, args...)...)
		require.Error(t, err)
		return err.Error()
	}
	image := s.Registry.Image("busybox:1")
	_, err := s.plane.TryKubectl(t, `
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: `+ns+`, labels: {app: web}}
spec:
  terminationGracePeriodSeconds: 1
  initContainers:
  - {name: setup, image: `+image+`, command: [/bin/sh, -c, "echo ready"]}
  containers:
  - {name: main, image: `+image+`, command: [/bin/sh, -c, "echo one; echo two; echo three; `+Forever+`"]}
  - {name: crash, image: `+image+`, command: [/bin/sh, -c, "echo crashed; sleep 1; exit 3"]}
  - {name: counter, image: `+image+`, command: [/bin/sh, -c, "for i in 1 2 3 4 5; do echo $i; sleep 1; done"]}
  - {name: absent, image: nowhere.invalid/none:1}
`, "apply", "-f", "-")
	require.NoError(t, err)
	await := func(want string, args ...string) {
		t.Helper()
		Eventually(t, time.Minute, "the log is "+want, func() error {
			out, err := s.plane.TryKubectl(t, "", append([]string{"logs", "-n", ns}, args...)...)
			if err == nil && out != want {
				err = errors.New(out)
			}
			return err
		})
	}
	await("one\ntwo\nthree\n", "web", "-c", "main")
	assert.Equal(t, "ready\n", logs("web", "-c", "setup"))
	assert.Equal(t, "two\nthree\n", logs("web", "-c", "main", "--tail=2"))
	assert.Equal(t, "one\ntw", logs("web", "-c", "main", "--limit-bytes=6"))
	assert.Equal(t, "one\ntwo\nthree\n", logs("web", "-c", "main", "--since=1h"))
	assert.Equal(t, "one\ntwo\nthree\n", logs("web", "-c", "main", "--since-time=2020-01-02T03:04:05Z"))
	assert.Empty(t, logs("web", "-c", "main", "--since-time="+time.Now().Add(time.Hour).UTC().Format(time.RFC3339)))
	assert.Equal(t, "one\ntwo\nthree\n", logs("web", "-c", "main", "--insecure-skip-tls-verify-backend",
		"--pod-running-timeout=1s"))
	stamped := strings.Fields(logs("web", "-c", "main", "--timestamps", "--tail=1"))
	require.Len(t, stamped, 2)
	_, err = time.Parse("2006-01-02T15:04:05.000000000Z07:00", stamped[0])
	assert.NoError(t, err)
	assert.Equal(t, "three", stamped[1])
	assert.Contains(t, logs("web", "-c", "main", "--prefix"), "[pod/web/main] one\n")
	assert.Contains(t, logs("-l", "app=web", "--all-containers", "--ignore-errors"), "two\n")
	assert.Contains(t, refused("-l", "app=web", "--all-containers", "-f", "--max-log-requests=2"),
		"maximum allowed concurrency is 2")
	await("crashed\n", "web", "-c", "crash", "-p")
	assert.Equal(t, "crashed\n", logs("web", "-c", "crash", "-f"), "following ends with the container")
	await("1\n2\n3\n4\n5\n", "web", "-c", "counter", "-f") // as they are written
	assert.Empty(t, logs("web", "-c", "main", "--since=1s"), "its lines are older")
	assert.Contains(t, refused("web", "-c", "main", "-p"),
		`previous terminated container "main" in pod "web" not found`)
	assert.Regexp(t,
		`container "absent" in pod "web" is waiting to start: (image can't be pulled|trying and failing to pull image)`,
		refused("web", "-c", "absent"))

	proxy := "/api/v1/nodes/" + NodeName + "/proxy"
	assert.Contains(t, s.plane.Kubectl(t, "get", "--raw", proxy+"/debug/history/"+ns+"/web"), "done")
	assert.Contains(t, s.plane.Kubectl(t, "get", "--raw", proxy+"/debug/history/"+ns+"/web?output=json"), `"Kind"`)
	assert.Contains(t, s.plane.Kubectl(t, "get", "--raw", proxy+"/logs/"), "<pre>")
	assert.Contains(t, s.plane.Kubectl(t, "get", "--raw", proxy+"/logs/?query=kubelet&tailLines=1"), "line of hour 23")
	s.plane.Kubectl(t, "delete", "pod", "-n", ns, "web", "--grace-period=1")
}
