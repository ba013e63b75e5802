package server_test

import (
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/server"
)

func appendLog(t *testing.T, path string, lines ...string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	require.NoError(t, err)
	for _, l := range lines {
		_, err = f.WriteString("2026-01-02T03:04:05.000000006Z stdout " + l + "\n")
		require.NoError(t, err)
	}
	require.NoError(t, f.Close())
}

// terminating is a node whose pod is not desired any more and has not been forgotten.
type terminating struct{ *node }

func (terminating) Pods() []*v1.Pod          { return nil }
func (n terminating) Terminating() []*v1.Pod { return n.node.Pods() }

func (terminating) Pod(types.UID) (*v1.Pod, bool) { return nil, false }

func TestLogsOfAPodThatIsBeingRemoved(t *testing.T) {
	n := newNode(t)
	appendLog(t, n.start("main"), "F one")
	h := server.Control(terminating{n}, server.Options{})
	for path, want := range map[string]int{
		"/containerLogs/default/web/main": http.StatusOK, "/containerLogs/default/web/u1/main": http.StatusOK, "/containerLogs/default/web/u2/main": http.StatusNotFound,
	} {
		code, body := get(t, h, path)
		assert.Equal(t, want, code, path)
		assert.Equal(t, want == http.StatusOK, body == "one\n", body)
	}
}

const logPath = "/containerLogs/default/web/main"

func TestLogs(t *testing.T) {
	n := newNode(t)
	h := server.Control(n, server.Options{})
	log := n.start("main")
	code, body := get(t, h, logPath)
	assert.Equal(t, http.StatusBadRequest, code)
	assert.Contains(t, body, "failed to open log file")
	const at = "2026-01-02T03:04:05"
	writeFile(t, log, []byte(""+
		at+".000000006Z stdout F one\n"+
		at+".1Z stderr P tw\n"+
		at+".2Z stderr F o\n"+
		"garbage\n"+
		at+"Z stdout F three\n"+
		"2026-01-02T04:04:06+01:00 stderr F four\n"+
		at+".9Z stdout F fiv"))

	for _, tt := range []struct {
		query string
		code  int
		want  string
	}{
		{"", 200, "one\ntwo\nthree\nfour\nfiv"},
		{"?tailLines=2", 200, "four\nfiv"},
		{"?tailLines=0&stream=All", 200, ""},
		{"?tailLines=100000000000000", 200, "one\ntwo\nthree\nfour\nfiv"},
		{"?tail=2", 200, "four\nfiv"},
		{"?tail=all&tailLines=1", 200, "one\ntwo\nthree\nfour\nfiv"},
		{"?tail=&tailLines=1", 200, "fiv"},
		{"?timestamps=true", 200, at + ".000000006Z one\n" + at + ".100000000Z two\n" + at + ".000000000Z three\n" +
			"2026-01-02T04:04:06.000000000+01:00 four\n" + at + ".900000000Z fiv"},
		{"?timestamps=false&follow=0&previous=False", 200, "one\ntwo\nthree\nfour\nfiv"},
		{"?stream=Stdout", 200, "one\nthree\nfiv"},
		{"?stream=Stderr", 200, "two\nfour\n"},
		{"?sinceTime=2026-01-02T03:04:06Z", 200, "four\n"},
		{"?sinceTime=2026-01-02T04:04:06%2B01:00", 200, "four\n"},
		{"?sinceTime=2026-01-02T03:04:05.15Z", 200, "o\nfour\nfiv"},
		{"?sinceTime=2026-01-02T03:04:05.15Z&timestamps=1", 200, at + ".200000000Z o\n2026-01-02T04:04:06.000000000+01:00 four\n" + at + ".900000000Z fiv"},
		{"?sinceTime=", 200, "one\ntwo\nthree\nfour\nfiv"},
		{"?sinceSeconds=1", 200, ""},
		{"?sinceSeconds=9223372036854775807", 200, "one\ntwo\nthree\nfour\nfiv"},
		{"?limitBytes=6", 200, "one\ntw"},
		{"?limitBytes=8", 200, "one\ntwo\n"},
		{"?limitBytes=3&timestamps=true&tailLines=1", 200, "202"},
		{"?limitBytes=1000", 200, "one\ntwo\nthree\nfour\nfiv"},
		{"?limitBytes=5&follow=true", 200, "one\nt"},
		{"?container=x&insecureSkipTLSVerifyBackend=true&other=1", 200, "one\ntwo\nthree\nfour\nfiv"},
		{"?tailLines=-1", 422, `{"message": "Invalid request."}`},
		{"?limitBytes=0", 422, `{"message": "Invalid request."}`},
		{"?sinceSeconds=0", 422, `{"message": "Invalid request."}`},
		{"?sinceSeconds=1&sinceTime=2026-01-02T03:04:06Z", 422, `{"message": "Invalid request."}`},
		{"?stream=stdout", 422, `{"message": "Invalid request."}`},
		{"?stream=Stdout&tailLines=1", 422, `{"message": "Invalid request."}`},
		{"?tailLines=x", 400, `{"message": "Unable to decode query."}`},
		{"?tailLines=", 400, `{"message": "Unable to decode query."}`},
		{"?limitBytes=1.5", 400, `{"message": "Unable to decode query."}`},
		{"?sinceSeconds=9223372036854775808", 400, `{"message": "Unable to decode query."}`},
		{"?sinceTime=yesterday", 400, `{"message": "Unable to decode query."}`},
		{"?previous=1", 400, `previous terminated container "main" in pod "web" not found`},
	} {
		code, body = get(t, h, logPath+tt.query)
		assert.Equal(t, tt.code, code, tt.query)
		assert.Equal(t, tt.want, body, tt.query)
	}

	n.exit(1)
	appendLog(t, n.start("main"), "F second")
	_, body = get(t, h, logPath)
	assert.Equal(t, "second\n", body)
	_, body = get(t, h, logPath+"?previous=true&tailLines=2&follow=true")
	assert.Equal(t, "four\nfiv", body)

	for path, want := range map[string]string{
		"/containerLogs/default/other/main": `pod "other" does not exist`,
		"/containerLogs/other/web/main":     `pod "web" does not exist`,
		"/containerLogs/default/web/other":  `container "other" not found in pod "web"`,
	} {
		code, body = get(t, h, path)
		assert.Equal(t, http.StatusNotFound, code)
		assert.Equal(t, want, body)
	}
	code, _ = get(t, server.Handler(n, server.Options{}), logPath)
	assert.Equal(t, http.StatusMethodNotAllowed, code, "the read-only API has no logs")
	code, body = get(t, h, "/healthz")
	assert.Equal(t, http.StatusOK, code, body)
}

// The states of a container, and kubelet's choice of an instance or its words.
func TestLogsOfTheInstanceInTheStatus(t *testing.T) {
	n := newNode(t)
	h := server.Control(n, server.Options{})
	appendLog(t, n.start("main"), "F first")
	appendLog(t, n.start("main"), "F second")
	terminated := func(id string) v1.ContainerState {
		return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ContainerID: id}}
	}
	waiting := func(reason string) v1.ContainerState {
		return v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason, Message: "hidden"}}
	}
	for _, tt := range []struct {
		name    string
		status  []v1.ContainerStatus
		query   string
		unknown bool // the runtime has no container
		want    string
	}{
		{name: "none", unknown: true, want: `container "main" in pod "web" is not available`},
		{name: "none, but it runs", want: "second\n"},
		{name: "running", status: []v1.ContainerStatus{{ContainerID: "t://0", State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}}, want: "first\n"},
		{name: "terminated", status: []v1.ContainerStatus{{State: terminated("t://0")}}, want: "first\n"},
		{name: "terminated, was not started again", status: []v1.ContainerStatus{{State: terminated(""), LastTerminationState: terminated("t://0")}}, want: "first\n"},
		{name: "terminated without ID", status: []v1.ContainerStatus{{State: terminated("")}}, unknown: true, want: `container "main" in pod "web" is terminated`},
		{name: "waiting after an end", status: []v1.ContainerStatus{{State: waiting("CrashLoopBackOff"), LastTerminationState: terminated("t://0")}}, want: "first\n"},
		{name: "waiting after an end without ID", status: []v1.ContainerStatus{{State: waiting("x"), LastTerminationState: terminated("")}}, unknown: true, want: `container "main" in pod "web" is terminated`},
		{name: "waiting", status: []v1.ContainerStatus{{State: waiting("PodInitializing")}}, unknown: true, want: `container "main" in pod "web" is waiting to start: PodInitializing`},
		{name: "pulling", status: []v1.ContainerStatus{{State: waiting("ErrImagePull")}}, unknown: true, want: `container "main" in pod "web" is waiting to start: image can't be pulled`},
		{name: "not pulling", status: []v1.ContainerStatus{{State: waiting("ImagePullBackOff")}}, unknown: true, want: `container "main" in pod "web" is waiting to start: trying and failing to pull image`},
		{name: "no state", status: []v1.ContainerStatus{{}}, unknown: true, want: `container "main" in pod "web" is waiting to start - no logs yet`},
		{name: "waiting in the status only", status: []v1.ContainerStatus{{State: waiting("ContainerCreating")}}, want: "second\n"},
		{name: "removed from the runtime", status: []v1.ContainerStatus{{State: terminated("t://9")}}, want: "unable to retrieve container logs for t://9"},
		{name: "no ID", status: []v1.ContainerStatus{{State: terminated("9")}}, want: "unable to retrieve container logs for 9"},
		{name: "previous", query: "?previous=true", status: []v1.ContainerStatus{{ContainerID: "t://1", LastTerminationState: terminated("t://0")}}, want: "first\n"},
		{name: "no previous", query: "?previous=true", status: []v1.ContainerStatus{{ContainerID: "t://1"}}, want: `previous terminated container "main" in pod "web" not found`},
		{name: "previous is removed", query: "?previous=true", status: []v1.ContainerStatus{{LastTerminationState: terminated("t://9")}}, want: "unable to retrieve container logs for t://9"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			kept := n.seen
			defer func() { n.seen = kept }()
			if tt.unknown {
				n.seen.Containers = nil
			}
			for i := range tt.status {
				tt.status[i].Name = "main"
			}
			n.pod.Status.ContainerStatuses = tt.status
			code, body := get(t, h, logPath+tt.query)
			assert.Equal(t, tt.want, body)
			assert.Equal(t, !strings.HasSuffix(tt.want, "\n"), code == http.StatusBadRequest, code)
		})
	}
}

// reader reads an answer as it comes.
type reader struct {
	t    *testing.T
	body io.ReadCloser
}

func (r reader) expect(want string) {
	r.t.Helper()
	got := make([]byte, len(want))
	_, err := io.ReadFull(r.body, got)
	require.NoError(r.t, err, "%s", got)
	require.Equal(r.t, want, string(got))
}

func (r reader) expectEnd() {
	r.t.Helper()
	rest, err := io.ReadAll(r.body)
	require.NoError(r.t, err)
	require.Empty(r.t, string(rest))
	require.NoError(r.t, r.body.Close())
}

func follow(t *testing.T, c *http.Client, container, query string) reader {
	t.Helper()
	resp, err := c.Get("http://agent/containerLogs/default/web/" + container + "?follow=true" + query)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, resp.StatusCode)
	t.Cleanup(func() { _ = resp.Body.Close() })
	return reader{t, resp.Body}
}

func TestFollowGoesOnAcrossRotationAndRestarts(t *testing.T) {
	n := newNode(t)
	c := n.serve(t)
	first := n.start("main")
	r := follow(t, c, "main", "&restarts=true") // the log need not be there yet
	appendLog(t, first, "F one", "F two")
	r.expect("one\ntwo\n")
	appendLog(t, first, "F three")
	r.expect("three\n")

	require.NoError(t, os.Rename(first, first+".old"))
	appendLog(t, first+".old", "F four")
	appendLog(t, first, "F five")
	r.expect("four\nfive\n")

	appendLog(t, first, "F last words")
	n.exit(1)
	r.expect("last words\n")
	appendLog(t, n.start("main"), "F six")
	n.exit(2)
	third := n.start("main")
	appendLog(t, third, "F seven")
	r.expect("six\nseven\n")

	n.remove() // its last instance goes on for a while
	appendLog(t, third, "F eight")
	r.expect("eight\n")
	n.mu.Lock()
	n.seen.Containers[0].State = runtime.ContainerExited
	n.changed()
	n.mu.Unlock()
	r.expectEnd()
}

func TestFollowEnds(t *testing.T) {
	t.Run("with the container, as kubelet's", func(t *testing.T) {
		n := newNode(t)
		c := n.serve(t)
		log := n.start("main")
		appendLog(t, log, "F one")
		r := follow(t, c, "main", "")
		r.expect("one\n")
		appendLog(t, log, "F last words", "P without a newline")
		n.exit(1)
		r.expect("last words\nwithout a newline")
		r.expectEnd()
	})
	t.Run("where the container is not restarted", func(t *testing.T) {
		n := newNode(t)
		c := n.serve(t)
		appendLog(t, n.start("setup"), "F ready")
		r := follow(t, c, "setup", "")
		r.expect("ready\n")
		n.exit(0)
		r.expectEnd()
	})
	t.Run("with the pod", func(t *testing.T) {
		n := newNode(t)
		c := n.serve(t)
		appendLog(t, n.start("main"), "F failed")
		n.exit(1)
		r := follow(t, c, "main", "&restarts=true")
		r.expect("failed\n")
		n.mu.Lock()
		n.pod.Status.Phase = v1.PodFailed
		n.mu.Unlock()
		r.expectEnd()
	})
	t.Run("with the end of the instance while the pod is terminating", func(t *testing.T) {
		n := newNode(t)
		c := n.serve(t)
		appendLog(t, n.start("main"), "F one")
		r := follow(t, c, "main", "&restarts=true")
		r.expect("one\n")
		n.mu.Lock()
		n.pod.DeletionTimestamp = new(metav1.Now())
		n.mu.Unlock()
		n.exit(1) // that would be restarted otherwise
		r.expectEnd()
	})
	t.Run("with the client, and with the server", func(t *testing.T) {
		n := newNode(t)
		c := n.serve(t) // whose end is awaited
		appendLog(t, n.start("main"), "F one")
		gone, stays := follow(t, c, "main", ""), follow(t, c, "main", "")
		gone.expect("one\n")
		stays.expect("one\n")
		require.NoError(t, gone.body.Close())
	})
}

// replaced is a node with a pod "default/web" that is terminating, beside its successor of
// the UID u2.
type replaced struct{ *node }

func (n replaced) Pods() []*v1.Pod {
	old := n.node.Pods()[0]
	fresh := old.DeepCopy()
	fresh.UID, fresh.Status = "u2", v1.PodStatus{Phase: v1.PodPending, Reason: "Waits", Message: "for u1"}
	old.DeletionTimestamp = new(metav1.Now())
	return []*v1.Pod{fresh, old}
}

func (n replaced) Pod(uid types.UID) (*v1.Pod, bool) { return podOf(n.Pods(), uid) }

func TestTheUIDDistinguishesPodsOfOneName(t *testing.T) {
	n := replaced{newNode(t)}
	appendLog(t, n.start("main"), "F of the predecessor")
	h := server.Control(n, server.Options{})
	code, body := get(t, h, "/containerLogs/default/web/u1/main")
	assert.Equal(t, http.StatusOK, code)
	assert.Equal(t, "of the predecessor\n", body)
	const waits = "container \"main\" in pod \"web\" is not available"
	for _, path := range []string{"/containerLogs/default/web/u2/main", "/containerLogs/default/web/main"} {
		code, body = get(t, h, path)
		assert.Equal(t, http.StatusBadRequest, code)
		assert.Equal(t, waits, body)
	}
	code, body = get(t, h, "/containerLogs/default/web/u3/main")
	assert.Equal(t, http.StatusNotFound, code)
	assert.Equal(t, "pod \"web\" does not exist", body)
}
