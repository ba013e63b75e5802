package host

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/kubelet/internal/config"
)

// good is a machine on which nothing is to be done.
func good() Facts {
	return Facts{Root: true, Noswap: true, Kernel: kernel(), OOMScoreAdj: "-999", OpenFiles: 1_000_000}
}

func settings(t *testing.T, content string, args ...string) *config.Settings {
	t.Helper()
	if content != "" {
		path := filepath.Join(t.TempDir(), "kubelet.yaml")
		require.NoError(t, os.WriteFile(path, []byte("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: "+
			"KubeletConfiguration\n"+content), 0o600))
		args = append(args, "--config", path)
	}
	s, err := program.Parse(args)
	require.NoError(t, err)
	return s
}

const cri = "--container-runtime-endpoint=/run/cri.sock"

// What a kubelet refuses is refused if there is a kubelet's configuration, and is a warning otherwise.
func TestSwapAndCgroupV1(t *testing.T) {
	bad := good()
	bad.Swap, bad.CgroupV1, bad.Noswap = true, true, false
	const inMemory = "Swap is on, and this kernel has no tmpfs option noswap: secrets and other volumes in memory " +
		"may be written to the disk"
	for name, tc := range map[string]struct {
		settings *config.Settings
		refused  []string
		warnings []string
	}{
		"a node by its defaults": {settings(t, "maxPods: 7\n", cri), []string{
			"failSwapOn: swap is on; remove it, or set failSwapOn to false",
			"failCgroupV1: the machine has cgroup v1; remove it, or set failCgroupV1 to false",
		}, nil},
		"a node that accepts both":       {settings(t, "failSwapOn: false\nfailCgroupV1: false\n", cri), nil, []string{inMemory}},
		"a flag wins":                    {settings(t, "failSwapOn: false\n", cri, "--fail-swap-on", "--fail-cgroupv1=false"), []string{"failSwapOn: swap is on; remove it, or set failSwapOn to false"}, nil},
		"without a configuration":        {settings(t, "", cri), nil, []string{"A kubelet would not start on this machine: swap is on (failSwapOn), the machine has cgroup v1 (failCgroupV1)", inMemory}},
		"the embedded runtime":           {settings(t, "maxPods: 7\ncontainerRuntimeEndpoint: embedded\n"), nil, []string{inMemory}},
		"the embedded runtime, as given": {settings(t, "failSwapOn: true\nfailCgroupV1: false\ncontainerRuntimeEndpoint: embedded\n"), []string{"failSwapOn: swap is on; remove it, or set failSwapOn to false"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			p := Decide(tc.settings, bad)
			var refused []string
			for _, err := range p.Refused {
				refused = append(refused, err.Error())
			}
			assert.Equal(t, tc.refused, refused)
			if tc.refused == nil {
				assert.Equal(t, tc.warnings, p.Warnings)
			}
			assert.Empty(t, p.Writes)
			assert.Equal(t, Plan{}, Decide(tc.settings, good()), "a machine as a kubelet wants it")
		})
	}
}

// With cgroup v1 the kernel kills processes one by one, and containers get no swap.
func TestMemoryWithCgroupV1(t *testing.T) {
	v1 := good()
	v1.CgroupV1 = true
	for content, want := range map[string]Plan{
		"failCgroupV1: false\nsingleProcessOOMKill: true\n":              {},
		"failCgroupV1: false\nsingleProcessOOMKill: false\n":             {Refused: []error{errors.New("singleProcessOOMKill: false needs cgroup v2, and the machine has cgroup v1; remove it")}},
		"failCgroupV1: false\nmemoryThrottlingFactor: 0.9\n":             {Warnings: []string{"memoryThrottlingFactor and memoryReservationPolicy have no effect on a machine with cgroup v1"}},
		"failCgroupV1: false\nmemorySwap: {swapBehavior: LimitedSwap}\n": {Warnings: []string{"memorySwap.swapBehavior LimitedSwap has no effect on a machine with cgroup v1: containers get no swap"}},
	} {
		s := settings(t, content, cri)
		assert.Equal(t, want, Decide(s, v1), content)
		assert.Equal(t, Plan{}, Decide(s, good()), content)
	}
}

func TestKernelSettings(t *testing.T) {
	f := good()
	f.Kernel = kernel()
	f.Kernel["kernel/panic"] = "0"
	delete(f.Kernel, "vm/overcommit_memory")
	p := Decide(settings(t, "", cri), f)
	assert.Equal(t, []Write{{"/proc/sys/kernel/panic", "10"}, {"/proc/sys/vm/overcommit_memory", "1"}}, p.Writes)
	assert.Empty(t, p.Refused)
	for _, args := range [][]string{{cri, "--protect-kernel-defaults"}, {"--protect-kernel-defaults"}} {
		p = Decide(settings(t, "", args...), f)
		require.Len(t, p.Refused, 2)
		require.EqualError(t, p.Refused[0], "protectKernelDefaults: sysctl kernel.panic is 0, and must be 10")
		require.EqualError(t, p.Refused[1], "protectKernelDefaults: sysctl vm.overcommit_memory cannot be read")
		assert.Empty(t, p.Writes)
	}
	assert.Equal(t, Plan{}, Decide(settings(t, ""), f), "the embedded runtime changes no setting of the kernel")
}

// Without the feature gate, an agent in a user namespace does not start if there is something that it may not do there.
func TestUserNamespace(t *testing.T) {
	f := good()
	f.UserNamespace = true
	const off = "--feature-gates=KubeletInUserNamespace=false"
	assert.Equal(t, Plan{}, Decide(settings(t, "", cri, off), f), "nothing is missing")
	f.Kernel["kernel/panic"], f.OOMScoreAdj = "0", "0"
	f.KernelLog = &fs.PathError{Op: "open", Path: "/dev/kmsg", Err: syscall.EPERM}
	writes := []Write{{"/proc/sys/kernel/panic", "10"}, {"/proc/self/oom_score_adj", "-999"}}
	assert.Equal(t, Plan{Writes: writes}, Decide(settings(t, "", cri), f), "what fails is logged")
	p := Decide(settings(t, "", cri, off), f)
	require.EqualError(t, errors.Join(p.Refused...), "the agent runs in a user namespace, and cannot set "+
		"kernel.panic=10, nor read the log of the kernel (open /dev/kmsg: operation not permitted); remove the feature "+
		"gate KubeletInUserNamespace=false")
	assert.Empty(t, Decide(settings(t, "", off), f).Refused, "the embedded runtime needs neither")
	f.Kernel["kernel/panic"] = "10"
	p = Decide(settings(t, "", cri, off), f)
	require.ErrorContains(t, errors.Join(p.Refused...), "and cannot read the log of the kernel")
	f.UserNamespace = false
	assert.Empty(t, Decide(settings(t, "", cri, off), f).Refused)
}

func TestTheProcess(t *testing.T) {
	f := good()
	f.OOMScoreAdj, f.OpenFiles = "0", 1024
	p := Decide(settings(t, "", cri), f)
	assert.Equal(t, Plan{Writes: []Write{{"/proc/self/oom_score_adj", "-999"}}, OpenFiles: 1_000_000}, p)
	p = Decide(settings(t, "", cri, "--oom-score-adj=-500", "--max-open-files=2000"), f)
	assert.Equal(t, Plan{Writes: []Write{{"/proc/self/oom_score_adj", "-500"}}, OpenFiles: 2000}, p)
	p = Decide(settings(t, ""), f)
	assert.Zero(t, p.OpenFiles, "containers of the embedded runtime would inherit it")
	assert.Len(t, p.Writes, 1)
	assert.Equal(t, Plan{}, Decide(settings(t, "", cri), Facts{}), "another system")
}

// What may not be set is one error, in one line.
func TestWhatCannotBeSet(t *testing.T) {
	p := Plan{Writes: []Write{{oomScoreFile, "-999"}, {sysctls + "kernel/panic", "10"},
		{sysctls + "vm/panic_on_oom", "0"}}, OpenFiles: 1_000_000}
	got := map[string]string{}
	var limit uint64
	good := func(path, value string) error { got[path] = value; return nil }
	require.NoError(t, p.Apply(good, func(n uint64) error { limit = n; return nil }))
	assert.Equal(t, map[string]string{oomScoreFile: "-999", sysctls + "kernel/panic": "10",
		sysctls + "vm/panic_on_oom": "0"}, got)
	assert.Equal(t, uint64(1_000_000), limit)

	clear(got)
	err := p.Apply(func(path, value string) error {
		if path == sysctls+"kernel/panic" {
			return good(path, value)
		}
		return &fs.PathError{Op: "open", Path: path, Err: syscall.EACCES}
	}, func(uint64) error { return syscall.EPERM })
	require.EqualError(t, err, "cannot set oom_score_adj=-999, vm.panic_on_oom=0, open files=1000000: permission "+
		"denied; operation not permitted")
	assert.Equal(t, []string{"/proc/sys/kernel/panic"}, func() (paths []string) {
		for path := range maps.Keys(got) {
			paths = append(paths, path)
		}
		return paths
	}(), "the others are set")
}
