//go:build linux

package process

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime/process/internal/supervise"
)

// fakeCgroup is a directory with the files of a cgroup, all empty.
func fakeCgroup(t *testing.T, files ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, f := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, f), nil, 0o600))
	}
	return dir
}

// contents are the files of a directory that are not empty.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	all := map[string]string{}
	for _, e := range entries {
		if data, err := os.ReadFile(filepath.Join(dir, e.Name())); err == nil && len(data) > 0 {
			all[e.Name()] = string(data)
		}
	}
	return all
}

func texts(missed []shortfall) (all []string) {
	for _, m := range missed {
		all = append(all, m.kind+": "+m.err.Error())
	}
	return all
}

var allResources = &criv1.LinuxContainerResources{
	CpuShares: 512, CpuQuota: 20_000, CpuPeriod: 100_000, MemoryLimitInBytes: 64 << 20,
	MemorySwapLimitInBytes: 96 << 20,
	CpusetCpus:             "0", Unified: map[string]string{"memory.oom.group": "1"},
}

func TestEnforceVersion2(t *testing.T) {
	dir := fakeCgroup(t, "cpu.weight", "cpu.max", "memory.max", "memory.swap.max", "memory.oom.group",
		"pids.max", "cpuset.cpus")
	assert.Empty(t, enforce(supervise.Cgroup{V2: dir}, limitsOf(allResources, 200)))
	assert.Equal(t, map[string]string{
		"cpu.weight": "20", "cpu.max": "20000 100000", "memory.max": "67108864", "memory.swap.max": "33554432",
		"memory.oom.group": "1", "pids.max": "200", "cpuset.cpus": "0",
	}, contents(t, dir))
}

func TestEnforceVersion1(t *testing.T) {
	cgroup := supervise.Cgroup{V1: map[string]string{
		"cpu":    fakeCgroup(t, "cpu.shares", "cpu.cfs_period_us", "cpu.cfs_quota_us"),
		"memory": fakeCgroup(t, "memory.limit_in_bytes", "memory.memsw.limit_in_bytes"),
		"pids":   fakeCgroup(t, "pids.max"),
	}, V2: fakeCgroup(t)} // mounted beside it, without controllers
	assert.Equal(t, []string{
		"the setting memory.oom.group: no cgroup for it can be written",
		"the set of CPUs: no cgroup for it can be written",
	}, texts(enforce(cgroup, limitsOf(allResources, 200))))
	assert.Equal(t, map[string]string{"cpu.shares": "512", "cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "20000"},
		contents(t, cgroup.V1["cpu"]))
	assert.Equal(t, map[string]string{"memory.limit_in_bytes": "67108864", "memory.memsw.limit_in_bytes": "100663296"},
		contents(t, cgroup.V1["memory"]))
	assert.Equal(t, map[string]string{"pids.max": "200"}, contents(t, cgroup.V1["pids"]))
	assert.Empty(t, contents(t, cgroup.V2))
}

// A limit is enforced by all its files, or it is said not to be.
func TestEnforceNot(t *testing.T) {
	resources := &criv1.LinuxContainerResources{CpuShares: 512, CpuQuota: 20_000, MemoryLimitInBytes: 4096}
	none := []string{
		"the CPU limit: no cgroup for it can be written", "the memory limit: no cgroup for it can be written",
		"the limit of processes: no cgroup for it can be written",
	}
	assert.Equal(t, none, texts(enforce(supervise.Cgroup{}, limitsOf(resources, 200))), "a weight is no limit")
	assert.Equal(t, none, texts(enforce(supervise.Cgroup{V2: fakeCgroup(t)}, limitsOf(resources, 200))))
	half := supervise.Cgroup{V1: map[string]string{"cpu": fakeCgroup(t, "cpu.cfs_period_us")}}
	assert.Equal(t, none, texts(enforce(half, limitsOf(resources, 200))))
	assert.Empty(t,
		enforce(supervise.Cgroup{}, limitsOf(&criv1.LinuxContainerResources{CpuQuota: -1, MemoryLimitInBytes: -1}, 0)),
		"there is none to take away")

	dir := fakeCgroup(t)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "memory.max"), 0o700))
	assert.Equal(t, []string{"the memory limit: open of memory.max to 4096: is a directory"},
		texts(enforce(supervise.Cgroup{V2: dir}, limitsOf(&criv1.LinuxContainerResources{MemoryLimitInBytes: 4096},
			0))), "without the path, which is another for each container")
}

func TestMakeCgroups(t *testing.T) {
	const id = "c1"
	points := map[string]supervise.CgroupMount{}
	for _, controller := range []string{"cpu", "pids", ""} {
		dir := t.TempDir()
		points[controller] = supervise.CgroupMount{Point: dir, Root: "/"}
		// The kernel makes these files; memory has no hierarchy, and what is below "pids" cannot be written.
		for _, parent := range []string{"pods", "own"} {
			require.NoError(t, os.MkdirAll(filepath.Join(dir, parent, id), 0o700))
			require.NoError(t, os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), nil, 0o600))
			require.NoError(t, os.WriteFile(filepath.Join(dir, parent, "cgroup.subtree_control"), nil, 0o600))
			if controller != "pids" {
				require.NoError(t, os.WriteFile(filepath.Join(dir, parent, id, "cgroup.procs"), nil, 0o600))
			}
		}
	}
	root := &cgroupRoot{mounts: points, root: "/own"}
	for parent, want := range map[string]string{"": "own", "/pods": "pods"} {
		assert.Equal(t, supervise.Cgroup{
			V1: map[string]string{"cpu": filepath.Join(points["cpu"].Point, want, id)},
			V2: filepath.Join(points[""].Point, want, id),
		}, makeCgroups(root.of(parent, id)), "parent %q", parent)
		for _, dir := range []string{"", want} {
			// the last of several writes stays in a file that is none of the kernel's
			assert.Equal(t, "+pids", contents(t, filepath.Join(points[""].Point, dir))["cgroup.subtree_control"])
		}
	}
	assert.Zero(t, root.of("kubepods.slice", id), "systemd's form")
	assert.Zero(t, (&cgroupRoot{mounts: points, root: "/own", off: true}).of("", id))
	assert.True(t, makeCgroups(supervise.Cgroup{}).None())

	root.root2 = filepath.Join(points[""].Point, "delegated")
	pod := root.of("", "p")
	assert.Equal(t, supervise.Cgroup{
		V1: map[string]string{"cpu": filepath.Join(points["cpu"].Point, "own/p"),
			"pids": filepath.Join(points["pids"].Point, "own/p")},
		V2: filepath.Join(points[""].Point, "delegated/p"),
	}, pod)
	assert.Equal(t, filepath.Join(points[""].Point, "delegated/p", id), within(pod, id).V2)
	assert.Equal(t, filepath.Join(points["cpu"].Point, "own/p", id), within(pod, id).V1["cpu"])
}

// The limits of a pod are what its client asks for; those of memory and CPU only if all containers have one.
func TestPodLimits(t *testing.T) {
	type resources = criv1.LinuxContainerResources
	limited := &resources{CpuQuota: 10_000, CpuPeriod: 100_000, MemoryLimitInBytes: 32 << 20}
	for _, tc := range []struct {
		name          string
		pod, overhead *resources
		first, second *resources
		updated       *resources
		shares, quota string
		memory        string
	}{
		{"none", nil, nil, nil, nil, nil, "", "max 100000", "max"},
		{"all", &resources{CpuShares: 512, CpuQuota: 20_000, CpuPeriod: 100_000, MemoryLimitInBytes: 64 << 20}, nil, limited, limited, nil, "20", "20000 100000", "67108864"},
		{"overhead", &resources{CpuShares: 256, CpuQuota: 20_000, CpuPeriod: 100_000, MemoryLimitInBytes: 64 << 20}, &resources{CpuShares: 256, CpuQuota: 5_000, CpuPeriod: 100_000, MemoryLimitInBytes: 1 << 20},
			limited, limited, nil, "20", "25000 100000", "68157440"},
		{"one without", &resources{CpuShares: 512, CpuQuota: 10_000, CpuPeriod: 100_000, MemoryLimitInBytes: 32 << 20}, nil, limited, nil, nil, "20", "max 100000", "max"},
		{"the first without", &resources{CpuShares: 512, CpuQuota: 10_000, CpuPeriod: 100_000, MemoryLimitInBytes: 32 << 20}, nil, nil, limited, nil, "20", "max 100000", "max"},
		{"updated", &resources{MemoryLimitInBytes: 64 << 20}, nil, limited, nil, &resources{CpuShares: 512, MemoryLimitInBytes: 16 << 20}, "20", "max 100000", "16777216"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			// The directories are those of cgroups of version 2; nothing in them is the kernel's.
			pod := fakeCgroup(t, "cgroup.procs", "cpu.weight", "cpu.max", "memory.max", "pids.max")
			s := &Server{opts: Options{PIDLimit: 9, Dir: t.TempDir()}}
			require.NoError(t, os.Mkdir(filepath.Join(s.opts.Dir, "sandboxes"), 0o700))
			b := newSandbox(sandboxRecord{ID: "b", Cgroup: supervise.Cgroup{V2: pod},
				Config: &criv1.PodSandboxConfig{Linux: &criv1.LinuxPodSandboxConfig{Resources: tc.pod,
					Overhead: tc.overhead}}})
			s.sandboxes = map[string]*sandbox{"b": b}
			for i, r := range []*resources{tc.first, tc.second} {
				name := string(rune('a' + i))
				require.NoError(t, os.Mkdir(filepath.Join(pod, name), 0o700))
				require.NoError(t, os.WriteFile(filepath.Join(pod, name, "cgroup.procs"), nil, 0o600))
				rec := &containerRecord{ID: name,
					Config: &criv1.ContainerConfig{Linux: &criv1.LinuxContainerConfig{Resources: r}}}
				s.limit(b, rec)
				assert.Equal(t, filepath.Join(pod, name), rec.Cgroup.V2)
				b.containers[name] = newContainer(*rec, "")
			}
			if tc.updated != nil {
				_, err := (&runtimeService{Server: s}).UpdatePodSandboxResources(t.Context(),
					&criv1.UpdatePodSandboxResourcesRequest{PodSandboxId: "b", Resources: tc.updated})
				require.NoError(t, err)
				var rec sandboxRecord
				require.NoError(t, supervise.ReadFile(s.sandboxFile("b"), &rec))
				assert.EqualValues(t, tc.updated.GetMemoryLimitInBytes(), rec.Updated.GetMemoryLimitInBytes())
			}
			got := contents(t, pod)
			want := map[string]string{"cpu.max": tc.quota, "memory.max": tc.memory, "pids.max": "9"}
			if tc.shares != "" {
				want["cpu.weight"] = tc.shares
			}
			assert.Equal(t, want, got)
		})
	}
}
