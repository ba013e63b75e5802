//go:build linux

package process

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/cri"
)

// TestClient runs a pod the way an agent does. Its preStop hook goes on after the grace period: the
// container, which has the stop signal then, ends when the hook has answered it.
func TestClient(t *testing.T) {
	t.Parallel()
	n := startNode(t, Options{})
	ctx := context.Background()
	rt, err := cri.Dial(ctx, n.server.Endpoint(), cri.Options{})
	require.NoError(t, err)
	defer rt.Close()
	require.NoError(t, rt.Check(ctx))
	assert.True(t, rt.Features().HostProcesses)

	signaled, answer := filepath.Join(n.opts.Dir, "signaled"), filepath.Join(n.opts.Dir, "answer")
	sh := func(format string, args ...any) []string { return []string{"sh", "-c", fmt.Sprintf(format, args...)} }
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: types.UID("1234")},
		Spec: v1.PodSpec{
			RestartPolicy: v1.RestartPolicyNever, TerminationGracePeriodSeconds: new(int64(1)),
			InitContainers: []v1.Container{{Name: "init", Image: "host", Command: []string{"true"}}},
			Containers: []v1.Container{{
				Name: "main", Image: "host",
				Command: sh("trap 'touch %s; until [ -e %s ]; do sleep 0.01; done; exit 3' TERM; printf bye > "+
					"$TERMINATION_MESSAGE_PATH; echo ready; while :; do sleep 0.01; done", signaled, answer),
				Lifecycle: &v1.Lifecycle{PreStop: &v1.LifecycleHandler{Exec: &v1.ExecAction{
					Command: sh("until [ -e %s ]; do sleep 0.01; done; touch %s; sleep 600", signaled, answer),
				}}},
				TerminationMessagePath: "/dev/termination-log",
			}},
		},
	}
	ref := runtime.RefOf(pod)
	sync := func() *runtime.PodStatus {
		status, err := rt.InspectPod(ctx, ref)
		require.NoError(t, err)
		_, err = rt.SyncPod(ctx, runtime.PodSync{
			Pod: pod, Status: status, Dir: filepath.Join(n.opts.Dir, "pod"),
			Host: &runtime.Host{PodLogsDir: filepath.Join(n.opts.Dir, "logs")},
		})
		require.NoError(t, err)
		status, err = rt.InspectPod(ctx, ref)
		require.NoError(t, err)
		return status
	}
	var status *runtime.PodStatus
	eventually(t, func() bool {
		status = sync()
		main := status.Newest("main")
		return main != nil && main.State == runtime.ContainerRunning
	}, "the pod does not run")
	assert.NotEmpty(t, status.IPs)
	images, err := rt.ListImages(ctx)
	require.NoError(t, err)
	require.Len(t, images.Images, 1)
	assert.Equal(t, "host:latest 0", fmt.Sprint(images.Images[0].Name(), " ", images.Images[0].Size),
		"it takes no space")
	main := status.Newest("main")
	eventually(t, func() bool {
		data, _ := os.ReadFile(main.LogPath)
		return strings.Contains(string(data), "stdout F ready")
	}, "it says nothing")
	got, err := rt.Exec(ctx, main.ID, []string{"echo", "hi"}, time.Minute)
	require.NoError(t, err)
	assert.Equal(t, "hi\n", string(got.Output))

	require.NoError(t, rt.KillPod(ctx, runtime.PodKill{Pod: pod, Status: status}))
	status, err = rt.InspectPod(ctx, ref)
	require.NoError(t, err)
	main = status.Newest("main")
	assert.Equal(t, runtime.ContainerExited, main.State)
	assert.EqualValues(t, 3, main.ExitCode)
	assert.Equal(t, "bye", main.Message)
}

func TestUsers(t *testing.T) {
	t.Parallel()
	n := startNode(t, Options{})
	p := n.pod()
	config := shell("c", "id -u; id -g; id -G; echo $HOME")
	config.Linux.SecurityContext = &criv1.LinuxContainerSecurityContext{
		RunAsUser: &criv1.Int64Value{Value: 65534}, RunAsGroup: &criv1.Int64Value{Value: 65533},
		SupplementalGroups: []int64{4711}, NoNewPrivs: true,
	}
	if os.Geteuid() == 65534 {
		config.Linux.SecurityContext.RunAsUser.Value = 0
	}
	id, err := p.create(config)
	if os.Geteuid() != 0 {
		require.ErrorContains(t, err, "only root can run containers as another user")
		return
	}
	require.NoError(t, err)
	_, err = n.rs.StartContainer(context.Background(), &criv1.StartContainerRequest{ContainerId: id})
	require.NoError(t, err)
	require.EqualValues(t, 0, n.exited(id).GetExitCode())
	log := p.log("c")
	assert.Contains(t, log, "F 65534\n")
	assert.Contains(t, log, "F 65533\n")
	assert.Contains(t, log, "4711")
	assert.EqualValues(t, 65534, n.status(id).GetUser().GetLinux().GetUid())
}

func TestMemoryLimit(t *testing.T) {
	t.Parallel()
	n := startNode(t, Options{})
	p := n.pod()
	config := shell("c", `x=a; while :; do x="$x$x"; done`)
	config.Linux.Resources = &criv1.LinuxContainerResources{MemoryLimitInBytes: 32 << 20}
	id, err := p.create(config)
	require.NoError(t, err)
	resp, err := n.rs.ContainerStatus(context.Background(),
		&criv1.ContainerStatusRequest{ContainerId: id, Verbose: true})
	require.NoError(t, err)
	if strings.Contains(resp.GetInfo()["info"], "the memory limit is not enforced") {
		t.Skip("no memory cgroup can be made here, as the status says")
	}
	_, err = n.rs.StartContainer(context.Background(), &criv1.StartContainerRequest{ContainerId: id})
	require.NoError(t, err)
	st := n.exited(id)
	assert.EqualValues(t, 137, st.GetExitCode())
	assert.Equal(t, "OOMKilled", st.GetReason())
}

// BenchmarkStart starts b.N containers, 8 at a time, each with its pod; beside it,
// the same command by fork and exec alone.
func BenchmarkStart(b *testing.B) {
	b.Run("containers", func(b *testing.B) {
		n := startNode(b, Options{NoCgroups: true})
		parallel(b, func() {
			p := n.pod()
			p.run(shell("c", "exec sleep 1000"))
		})
		b.StopTimer()
	})
	b.Run("fork-exec", func(b *testing.B) {
		var mu sync.Mutex
		var all []*exec.Cmd
		parallel(b, func() {
			cmd := exec.Command("sh", "-c", "exec sleep 1000")
			if err := cmd.Start(); err != nil {
				b.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, cmd)
		})
		b.StopTimer()
		for _, cmd := range all {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
}

func parallel(b *testing.B, f func()) {
	b.ResetTimer()
	var g sync.WaitGroup
	slots := make(chan struct{}, 8)
	for range b.N {
		slots <- struct{}{}
		g.Go(func() {
			defer func() { <-slots }()
			f()
		})
	}
	g.Wait()
}
