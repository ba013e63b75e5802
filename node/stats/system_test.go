package stats

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// writeCgroup writes files of a cgroup of version 2.
func writeCgroup(t *testing.T, mount, cgroup, cpuUsec, memory string) {
	t.Helper()
	dir := filepath.Join(mount, cgroup)
	require.NoError(t, os.MkdirAll(dir, 0o700))
	for name, text := range map[string]string{"cpu.stat": "usage_usec " + cpuUsec + "\n", "memory.current": memory +
		"\n", "memory.stat": "inactive_file 0\n"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
}

// The system containers have the names of kubelet in the summary. A cgroup that does not exist is left out.
func TestSystemContainers(t *testing.T) {
	mount := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(mount, "cgroup.controllers"), nil, 0o600))
	writeCgroup(t, mount, "kubepods", "1000", "5000")
	writeCgroup(t, mount, "kubepods/burstable", "700", "4000")
	writeCgroup(t, mount, "agent", "100", "300")
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		started := time.Unix(1000, 0)
		c, err := New(n, Options{proc: "testdata/proc", cgroup: mount, NodeCgroups: func() []NodeCgroup {
			return []NodeCgroup{
				{Name: statsv1alpha1.SystemContainerKubelet, Cgroup: "/agent", Started: started}, {Name: statsv1alpha1.SystemContainerRuntime, Cgroup: "/gone"}, {Name: "empty"},
				{Name: statsv1alpha1.SystemContainerPods, Cgroup: "/kubepods"}, {Cgroup: "/kubepods/burstable"},
			}
		}})
		require.NoError(t, err)
		require.NoError(t, c.Join(n))
		r := read(t, c)
		system := r.Summary.Node.SystemContainers
		require.Len(t, system, 2)
		assert.Equal(t, "kubelet", system[0].Name)
		assert.True(t, started.Equal(system[0].StartTime.Time))
		assert.Equal(t, "pods", system[1].Name)
		assert.False(t, system[1].StartTime.IsZero())
		assert.EqualValues(t, 1_000_000, *system[1].CPU.UsageCoreNanoSeconds)
		assert.EqualValues(t, 5000, *system[1].Memory.WorkingSetBytes)
		require.Len(t, r.Cgroups, 3)
		assert.Equal(t, "/kubepods/burstable", r.Cgroups[2].Cgroup)
		assert.EqualValues(t, 4000, *r.Cgroups[2].Usage.Memory)

		writeCgroup(t, mount, "kubepods", "5001000", "5000")
		time.Sleep(10 * time.Second)
		data, err := c.Summary(t.Context(), true)
		require.NoError(t, err)
		var summary statsv1alpha1.Summary
		require.NoError(t, json.Unmarshal(data, &summary))
		require.Len(t, summary.Node.SystemContainers, 2)
		assert.EqualValues(t, 500_000_000, *summary.Node.SystemContainers[1].CPU.UsageNanoCores)
	})
}

// The cgroups of pods and containers are looked up once, also if the runtime reports the usage.
func TestCgroupPaths(t *testing.T) {
	mount := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(mount, "cgroup.controllers"), nil, 0o600))
	pod := filepath.Join(mount, "kubepods.slice/kubepods-podu.slice")
	for _, id := range []string{"u", "main"} {
		require.NoError(t, os.MkdirAll(filepath.Join(pod, "cri-containerd-"+id+".scope"), 0o700))
	}
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.add("web", "u", "main", "elsewhere")
		status := n.statuses["u"]
		status.Containers[0].ID.ID, status.Sandboxes[0].ID = "main", "u"
		n.add("old", "v", "main")
		c, err := New(n, Options{proc: "testdata/proc", cgroup: mount,
			PodCgroup: func(pod *v1.Pod) string { return "/kubepods.slice/kubepods-pod" + string(pod.UID) + ".slice" }})
		require.NoError(t, err)
		require.NoError(t, c.Join(n))
		check := func() {
			t.Helper()
			r := read(t, c)
			require.Len(t, r.Pods, 2)
			assert.Equal(t,
				PodDetails{SandboxID: "sandbox-v",
					Containers: []ContainerDetails{{ID: "v-main", Image: "registry.example/main:1"}}}, r.Pods[0],
				"of another parent")
			assert.Equal(t, "/kubepods.slice/kubepods-podu.slice", r.Pods[1].CgroupPath)
			assert.Empty(t, r.Pods[1].Containers[0].CgroupPath)
			assert.Equal(t, "/kubepods.slice/kubepods-podu.slice/cri-containerd-main.scope",
				r.Pods[1].Containers[1].CgroupPath)
		}
		check()
		time.Sleep(time.Minute)
		check()
		delete(n.statuses, "u")
		time.Sleep(time.Minute)
		require.Len(t, read(t, c).Pods, 1)
		assert.Empty(t, c.paths.byID)
	})
}

func TestOwnCgroup(t *testing.T) {
	for text, want := range map[string]string{
		"0::/system.slice/agent.service\n":                "/system.slice/agent.service",
		"4:cpu,cpuacct:/a\n3:memory:/a\n0::/b\n":          "/a",
		"4:cpu,cpuacct:/a\n3:memory:/other\n1:name=x:/\n": "",
		"":        "",
		"broken":  "",
		"0::/a:b": "/a:b",
	} {
		assert.Equal(t, want, ownCgroup(text), text)
	}
}

var _ runtime.UsageReporter = (*node)(nil)
