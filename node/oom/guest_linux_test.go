package oom

import (
	"context"
	"fmt"
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
	"golang.org/x/sys/unix"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// killed runs the helper in a cgroup of a container until it ends, and returns its exit code, 137 if it was killed.
func killed(t *testing.T, dir, what, score string) int32 {
	fd, err := os.Open(dir)
	require.NoError(t, err)
	defer func() { _ = fd.Close() }()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), helper+"="+what)
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(fd.Fd())}
	require.NoError(t, cmd.Start())
	require.NoError(t, os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", cmd.Process.Pid), []byte(score), 0))
	_ = cmd.Wait()
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int32(ws.Signal())
	}
	return int32(cmd.ProcessState.ExitCode())
}

// TestGuestKills shows the kills of a real kernel. It needs a machine of its own, with cgroup v2, because it uses up
// the memory.
func TestGuestKills(t *testing.T) {
	if os.Getenv("KUBELETKIT_GUEST") == "" {
		t.Skip("set KUBELETKIT_GUEST=1 on a machine that may run out of memory")
	}
	// The agent is not to be the victim.
	require.NoError(t, os.WriteFile("/proc/self/oom_score_adj", []byte("-999"), 0))
	web := testpod.New("web", testpod.Containers("main"))
	pod := "/sys/fs/cgroup/kubepods/burstable/pod" + string(web.UID)
	require.NoError(t, os.MkdirAll(pod, 0o755))
	for dir := pod; dir != "/sys/fs/cgroup"; dir = filepath.Dir(dir) {
		defer func() { _ = os.Remove(dir) }()
	}
	for _, dir := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/kubepods",
		"/sys/fs/cgroup/kubepods/burstable", pod} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+memory"), 0))
	}

	events, records := make(chan runtime.Event, 100), make(chan runtime.Record, 100)
	w, err := New(Options{})
	require.NoError(t, err)
	require.NoError(t, w.Join(told{events: events, records: records}))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		assert.NoError(t, w.Run(ctx))
	}()
	defer func() { cancel(); <-done }()

	for i, test := range []struct {
		name, what, limit, podLimit, group string
		code                               int32
		events                             []string
	}{
		{name: "limit of the container", what: "hog", limit: "40M", code: 137, events: []string{"OOMKilling: the memory limit of the container is reached"}},
		{name: "a child is killed", what: "parent", limit: "60M", code: 3, events: []string{"OOMKilling: the memory limit of the container is reached"}},
		{name: "all processes are killed", what: "parent", limit: "60M", group: "1", code: 137, events: []string{"OOMKilling: the memory limit of the container is reached"}},
		{name: "limit of the pod", what: "hog", podLimit: "40M", code: 137, events: []string{"OOMKilling: the memory limit of the pod is reached"}},
		{name: "the machine", what: "hog", code: 137, events: []string{"SystemOOM: System OOM encountered, victim process: ", "OOMKilling: the node is out of memory"}},
	} {
		id := fmt.Sprintf("%064x", i+1)
		dir := filepath.Join(pod, id)
		require.NoError(t, os.Mkdir(dir, 0o755))
		set := func(dir, file, value string) {
			if value != "" {
				require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(value), 0), file)
			}
		}
		set(dir, "memory.max", test.limit)
		set(dir, "memory.oom.group", test.group)
		set(pod, "memory.max", test.podLimit)
		if test.limit != "" || test.podLimit != "" {
			set(dir, "memory.swap.max", "0")
		}
		if test.limit == "" && test.podLimit == "" {
			defer reserveMemory(t)()
		}
		c := runtime.ContainerStatus{Container: runtime.Container{ID: runtime.ContainerID{Type: "guest", ID: id},
			Name: "main", State: runtime.ContainerRunning}}
		status := &runtime.PodStatus{PodRef: runtime.RefOf(web), Containers: []runtime.ContainerStatus{c}}
		require.NoError(t, w.Running(ctx, web, status))
		code := killed(t, dir, test.what, "1000")
		assert.Equal(t, test.code, code, test.name)

		// The inspection that follows the end at once has the reason.
		c.State, c.ExitCode, c.Reason, c.FinishedAt = runtime.ContainerExited, code, "Error", time.Now()
		got, err := w.Inspector(fixed{&runtime.PodStatus{PodRef: runtime.RefOf(web),
			Containers: []runtime.ContainerStatus{c}}}).InspectPod(ctx, runtime.RefOf(web))
		require.NoError(t, err)
		assert.Equal(t, "OOMKilled", got.Containers[0].Reason, test.name)
		for _, want := range test.events {
			select {
			case e := <-events:
				t.Logf("%s: %s: %s", test.name, e.Reason, e.Message)
				reason, text, _ := strings.Cut(want, ": ")
				assert.Equal(t, reason, e.Reason, test.name)
				assert.Contains(t, e.Message, text, test.name)
				if reason == ReasonOOMKilling {
					assert.Contains(t, e.Message, "of container main", test.name)
					t.Log((<-records).Message)
				}
			case <-time.After(10 * time.Second):
				t.Errorf("%s: no event %s", test.name, want)
			}
		}
		assert.Empty(t, events, test.name)
		set(pod, "memory.max", "max")
		require.Eventually(t, func() bool { return os.Remove(dir) == nil }, 10*time.Second, 100*time.Millisecond,
			test.name)
	}

	// A container that fails without a kill.
	c := runtime.ContainerStatus{Container: runtime.Container{ID: runtime.ContainerID{Type: "guest",
		ID: strings.Repeat("f", 64)}, State: runtime.ContainerExited}, ExitCode: 137, Reason: "Error",
		FinishedAt: time.Now()}
	got, err := w.Inspector(fixed{&runtime.PodStatus{PodRef: runtime.RefOf(web),
		Containers: []runtime.ContainerStatus{c}}}).InspectPod(ctx, runtime.RefOf(web))
	require.NoError(t, err)
	assert.Equal(t, "Error", got.Containers[0].Reason)
}

// reserveMemory leaves 256 MiB to the machine. Huge pages that nothing uses are not cleared, which an emulated
// processor needs minutes for. The program, which the process that is to be killed runs, too, stays in memory:
// otherwise the kernel reads it again and again before it kills. It returns a function that gives the memory back.
func reserveMemory(t *testing.T) (restore func()) {
	data, err := os.ReadFile("/proc/meminfo")
	require.NoError(t, err)
	_, rest, _ := strings.Cut(string(data), "MemAvailable:")
	var kib int
	_, err = fmt.Sscan(rest, &kib)
	require.NoError(t, err)
	require.NoError(t, unix.Mlockall(unix.MCL_CURRENT))
	const file = "/proc/sys/vm/nr_hugepages" // of 2 MiB
	require.NoError(t, os.WriteFile(file, []byte(strconv.Itoa(max(0, kib/1024-256)/2)), 0))
	return func() {
		assert.NoError(t, os.WriteFile(file, []byte("0"), 0))
		assert.NoError(t, unix.Munlockall())
	}
}

type fixed struct{ status *runtime.PodStatus }

func (f fixed) InspectPod(context.Context, runtime.PodRef) (*runtime.PodStatus, error) {
	return f.status, nil
}
