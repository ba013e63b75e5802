package oom

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// The counts of a real kernel: of cgroup v1 where the tests run, and of v2 in a guest.
func TestRealCounts(t *testing.T) { realCounts(t) }

func TestGuestCounts(t *testing.T) {
	if os.Getenv("KUBELETKIT_GUEST") == "" {
		t.Skip("set KUBELETKIT_GUEST=1 on a machine with cgroup v2")
	}
	realCounts(t)
}

// told is a node that passes events and records on.
type told struct {
	lifecycle.NopNode
	events  chan runtime.Event
	records chan runtime.Record // nil: they are discarded
}

func (n told) Event(e runtime.Event) { n.events <- e }

func (n told) Record(r runtime.Record) {
	if n.records != nil {
		n.records <- r
	}
}

// inCgroup runs the helper in a cgroup until it ends, and returns its exit code.
func inCgroup(t *testing.T, dir, what string) int32 {
	cmd := exec.CommandContext(t.Context(), "sh", "-c", `echo $$ > "$0"/cgroup.procs && exec "$1"`, dir, os.Args[0])
	cmd.Env = append(os.Environ(), helper+"="+what)
	_ = cmd.Run()
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int32(ws.Signal())
	}
	return int32(cmd.ProcessState.ExitCode())
}

func realCounts(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	mount, limit := "/sys/fs/cgroup/memory", "memory.limit_in_bytes"
	v2 := false
	if _, err := os.Stat(mount); err != nil {
		mount, limit, v2 = "/sys/fs/cgroup", "memory.max", true
	}
	web := testpod.New("web", testpod.Containers("main"))
	root := "kubeletkit-oom-" + strconv.Itoa(os.Getpid())
	pod := filepath.Join(mount, root, "pod"+string(web.UID))
	if err := os.MkdirAll(pod, 0o755); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { _, _ = os.Remove(pod), os.Remove(filepath.Dir(pod)) })
	if v2 {
		for _, dir := range []string{mount, filepath.Dir(pod), pod} {
			require.NoError(t, os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+memory"), 0))
		}
	}
	events := make(chan runtime.Event, 100)
	w, err := New(Options{
		Open:      func() (Log, error) { return nil, errors.New("open /dev/kmsg: no such file or directory") },
		PodCgroup: func(*v1.Pod) string { return "/" + root + "/pod" + string(web.UID) },
	})
	require.NoError(t, err)
	require.NoError(t, w.Join(told{events: events}))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		assert.NoError(t, w.Run(ctx))
	}()
	defer func() { cancel(); <-done }()
	require.Eventually(t, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.counters != nil
	}, 10*time.Second, time.Millisecond)

	for i, test := range []struct {
		name, what      string
		limit, podLimit string
		code            int32
	}{
		{name: "the container", what: "hog", limit: "40M", code: 137},
		{name: "a child", what: "parent", limit: "80M", code: 3},
		{name: "a child, at the limit of the pod", what: "parent", podLimit: "80M", code: 3},
	} {
		id := strings.Repeat(strconv.Itoa(i+1), 64)
		dir := filepath.Join(pod, "cri-containerd-"+id+".scope")
		require.NoError(t, os.Mkdir(dir, 0o755))
		if v2 {
			require.NoError(t, os.WriteFile(filepath.Join(dir, "memory.swap.max"), []byte("0"), 0))
		}
		if test.limit != "" {
			require.NoError(t, os.WriteFile(filepath.Join(dir, limit), []byte(test.limit), 0))
		}
		if test.podLimit != "" {
			require.NoError(t, os.WriteFile(filepath.Join(pod, limit), []byte(test.podLimit), 0))
		}
		c := runtime.ContainerStatus{Container: runtime.Container{ID: runtime.ContainerID{Type: "real", ID: id},
			Name: "main", State: runtime.ContainerRunning}, StartedAt: time.Now()}
		require.NoError(t, w.Running(ctx, web, &runtime.PodStatus{PodRef: runtime.RefOf(web),
			Containers: []runtime.ContainerStatus{c}}))
		code := inCgroup(t, dir, test.what)
		assert.Equal(t, test.code, code, test.name)

		// The kernel reports the kill by itself, and the reason stays when the cgroup is gone.
		select {
		case e := <-events:
			t.Log(e.Message)
			assert.Equal(t, ReasonOOMKilling, e.Reason)
			if v2 && test.limit != "" {
				assert.Contains(t, e.Message, "the memory limit of the container is reached", test.name)
			}
		case <-time.After(10 * time.Second):
			t.Errorf("%s: no event", test.name)
		}
		require.Eventually(t, func() bool { return os.Remove(dir) == nil }, 10*time.Second, 10*time.Millisecond,
			test.name)
		c.State, c.ExitCode, c.Reason, c.FinishedAt = runtime.ContainerExited, code, "Error", time.Now()
		got, err := w.Inspector(fixedStatus{&runtime.PodStatus{PodRef: runtime.RefOf(web),
			Containers: []runtime.ContainerStatus{c}}}).InspectPod(ctx, runtime.RefOf(web))
		require.NoError(t, err)
		assert.Equal(t, "OOMKilled", got.Containers[0].Reason, test.name)
	}
	// The last container is watched no more when its cgroup is gone.
	require.Eventually(t, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.counts) == 0
	}, 10*time.Second, time.Millisecond)
	assert.Empty(t, events)
}

type fixedStatus struct{ status *runtime.PodStatus }

func (f fixedStatus) InspectPod(context.Context, runtime.PodRef) (*runtime.PodStatus, error) {
	return f.status, nil
}
