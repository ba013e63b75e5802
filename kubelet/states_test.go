package kubelet

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/check"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/config"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/lifecycle/fake"
	"github.com/kubeletkit/kubeletkit/node/placement/cpus"
	"github.com/kubeletkit/kubeletkit/node/placement/memory"
	"github.com/kubeletkit/kubeletkit/node/placement/numa"
	numafake "github.com/kubeletkit/kubeletkit/node/placement/numa/fake"
	"github.com/kubeletkit/kubeletkit/node/placement/topology"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// hostOf has the files of a machine with so many CPUs and GiB of memory, half of them on each of two nodes.
func hostOf(cpus int, gi uint64) fs.FS {
	return numafake.Machine{Nodes: 2, Cores: cpus / 2, Memory: gi << 30 / 2}.FS()
}

// listing is a runtime in which pods run; nil: it does not answer.
type listing struct{ running []types.UID }

func (l *listing) SetCPUSet(context.Context, runtime.ContainerID, string) error { return nil }

func (l *listing) ListPods(context.Context) (pods []*runtime.Pod, _ error) {
	if l == nil {
		return nil, errors.New("it does not answer")
	}
	for _, uid := range l.running {
		pods = append(pods, &runtime.Pod{PodRef: runtime.PodRef{UID: uid},
			Sandboxes: []runtime.Sandbox{{State: runtime.SandboxReady}}})
	}
	return pods, nil
}

// staticSettings are those of a node whose containers get exclusive CPUs and memory.
func staticSettings(t *testing.T, root string, flags ...string) *config.Settings {
	t.Helper()
	flags = append([]string{
		"--root-dir", root, "--container-runtime-endpoint=unix:///nothing.sock", "--cpu-manager-policy=static",
		"--reserved-cpus=0", "--memory-manager-policy=Static",
		"--kube-reserved=memory=100Mi", "--eviction-hard=memory.available<100Mi",
	}, flags...)
	if !strings.Contains(strings.Join(flags, " "), "--reserved-memory") {
		flags = append(flags, "--reserved-memory=0:memory=200Mi")
	}
	s, err := program.Parse(flags)
	require.NoError(t, err)
	return s
}

// opened makes the placement of the settings on a machine, has it read its states, and returns what it logs.
func opened(t *testing.T, s *config.Settings, host fs.FS, rt placementRuntime) (*placement, *strings.Builder, error) {
	t.Helper()
	var log strings.Builder
	p, err := newPlacement(t.Context(), s, host, rt)
	if err == nil { // as an agent does
		_, err = p.check(s.RootDir,
			funcr.New(func(_, args string) { log.WriteString(args + "\n") }, funcr.Options{}))
	}
	return p, &log, err
}

// wholePod is a Guaranteed pod with a container that requests whole CPUs.
func wholePod(uid types.UID) *v1.Pod {
	list := v1.ResourceList{v1.ResourceCPU: resource.MustParse("2"), v1.ResourceMemory: resource.MustParse("1Gi")}
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: string(uid), UID: uid},
		Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c",
			Resources: v1.ResourceRequirements{Requests: list, Limits: list}}}},
	}
}

// admitted admits the pod as the agent does.
func admitted(t *testing.T, p *placement, pod *v1.Pod) error {
	t.Helper()
	var opts kubeletkit.Options
	require.NoError(t, p.join(&opts))
	node := fake.NewNode()
	node.SetComponents(opts.Join...)
	i := slices.IndexFunc(opts.Join, func(c lifecycle.Component) bool { _, ok := c.(*topology.Manager); return ok })
	m := opts.Join[i].(*topology.Manager)
	require.NoError(t, m.Join(node))
	_, err := m.Admit(lifecycle.AdmitRequest{Pod: pod})
	return err
}

// leaveStates has an agent of the settings on 8 CPUs and 16 GiB give the pod "old" CPUs 1-2 and memory, and stop.
func leaveStates(t *testing.T, s *config.Settings) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Join(s.RootDir, "pods", "old"), 0o700))
	p, _, err := opened(t, s, hostOf(8, 16), &listing{})
	require.NoError(t, err)
	old := wholePod("old")
	require.NoError(t, admitted(t, p, old))
	_, err = p.cpus.Prepare(t.Context(), lifecycle.PrepareRequest{Pod: old})
	require.NoError(t, err)
	_, err = p.memory.Prepare(t.Context(), lifecycle.PrepareRequest{Pod: old})
	require.NoError(t, err)
	require.Equal(t, "1-2", p.cpus.Exclusive("old", "c").String())
}

// The agent starts with a state that does not fit. If nothing of it runs, the state is dropped. Otherwise what runs
// goes on, new pods that need the manager are refused, others run, and the file stays.
func TestStatesThatDoNotFit(t *testing.T) {
	for _, tc := range []struct {
		name string
		// flags are those of the next agent, on host, after damage of the file.
		flags  []string
		host   fs.FS
		damage func(t *testing.T, path string)
		// held names the manager that is held if the pod runs; "" for none. shared are the CPUs of others then, "" for
		// none set.
		file, held, shared string
	}{
		{"CPUs, other machine", nil, hostOf(2, 16), nil, cpus.CheckpointName, "cpus", "0"},
		{"CPUs, other reservation", []string{"--reserved-cpus=0-1"}, hostOf(8, 16), nil, cpus.CheckpointName, "cpus", "0,3-7"},
		{"CPUs, corrupt", nil, hostOf(8, 16), corrupt, cpus.CheckpointName, "cpus", ""},
		{"CPUs, policy none", []string{"--cpu-manager-policy=none"}, hostOf(8, 16), nil, cpus.CheckpointName, "", "0,3-7"},
		{"memory, other machine", nil, hostOf(8, 8), nil, memory.FileName, "memory", "0,3-7"},
		{"memory, other reservation", []string{"--reserved-memory=1:memory=200Mi"}, hostOf(8, 16), nil, memory.FileName, "memory", "0,3-7"},
		{"memory, corrupt", nil, hostOf(8, 16), corrupt, memory.FileName, "memory", "0,3-7"},
		{"memory, policy None", []string{"--memory-manager-policy=None"}, hostOf(8, 16), nil, memory.FileName, "", "0,3-7"},
	} {
		for who, rt := range map[string]*listing{
			"nothing runs": {}, "another runs": {[]types.UID{"another"}}, "it runs": {[]types.UID{"old"}}, "the runtime does not answer": nil,
		} {
			t.Run(tc.name+"/"+who, func(t *testing.T) {
				root := t.TempDir()
				leaveStates(t, staticSettings(t, root))
				path := filepath.Join(root, tc.file)
				if tc.damage != nil {
					tc.damage(t, path)
				}
				before, err := os.ReadFile(path)
				require.NoError(t, err)
				s := staticSettings(t, root, tc.flags...)
				p, log, err := opened(t, s, tc.host, rt)
				require.NoError(t, err, "the agent starts")
				running := rt == nil || len(rt.running) > 0 && (rt.running[0] == "old" || tc.damage != nil)
				flag := "--reset-memory-manager-state"
				if tc.file == cpus.CheckpointName {
					flag = "--reset-cpu-manager-state"
				}
				assert.Contains(t, log.String(), flag)
				if !running {
					assert.Contains(t, log.String(), "A state that does not fit is dropped")
					if tc.name != "CPUs, other machine" {
						require.NoError(t, admitted(t, p, wholePod("new")))
					}
					return
				}
				require.NoError(t, admitted(t, p, wholePod("old")), "it goes on")
				shared := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "shared", UID: "shared"},
					Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c"}}}}
				require.NoError(t, admitted(t, p, shared))
				edits, err := p.cpus.EditContainer(t.Context(), shared, &shared.Spec.Containers[0])
				require.NoError(t, err)
				assert.Equal(t, tc.shared, edits.CPUSet)
				err = admitted(t, p, wholePod("new"))
				if tc.held == "" {
					require.NoError(t, err)
				} else {
					refusal := (*runtime.TerminalError)(nil)
					require.ErrorAs(t, err, &refusal)
					assert.Equal(t, "UnexpectedAdmissionError", refusal.Reason)
					assert.Contains(t, refusal.Message, flag)
					assert.Contains(t, refusal.Message, path)
				}
				if tc.held == "memory" {
					assert.Empty(t, p.memory.Of("old", "c"), "it is not managed")
				}
				after, err := os.ReadFile(path)
				require.NoError(t, err)
				assert.Equal(t, string(before), string(after))

				// The flag drops it.
				s = staticSettings(t, root, append(tc.flags, flag)...)
				p, log, err = opened(t, s, tc.host, rt)
				require.NoError(t, err)
				assert.Contains(t, log.String(), "A state that does not fit is dropped")
				if p.cpus != nil {
					require.NoError(t, p.cpus.Restore())
				}
				if p.memory != nil {
					require.NoError(t, p.memory.Restore())
				}
			})
		}
	}
}

func corrupt(t *testing.T, path string) { write(t, path, "{") }

// A state that the disk does not return is not one that does not fit: the agent does not start, and drops nothing.
func TestStatesOnABadDisk(t *testing.T) {
	for _, flags := range [][]string{nil, {"--cpu-manager-policy=none"}, {"--memory-manager-policy=None"}} {
		for _, file := range []string{cpus.CheckpointName, memory.FileName} {
			root := t.TempDir()
			path := filepath.Join(root, file)
			require.NoError(t, os.Symlink(path, path))
			s := staticSettings(t, root, append(flags, "--reset-cpu-manager-state", "--reset-memory-manager-state")...)
			_, _, err := opened(t, s, hostOf(8, 16), &listing{})
			require.ErrorContains(t, err, "symbolic links", "%v %s", flags, file)
			_, err = os.Lstat(path)
			require.NoError(t, err)
		}
	}
}

// A state that fits costs no call of the runtime, and one of a policy that was left is removed when nothing of it runs.
func TestStatesThatFit(t *testing.T) {
	root := t.TempDir()
	leaveStates(t, staticSettings(t, root))
	p, log, err := opened(t, staticSettings(t, root), hostOf(8, 16), (*listing)(nil))
	require.NoError(t, err)
	assert.Empty(t, log.String())
	assert.Equal(t, "1-2", p.cpus.Exclusive("old", "c").String())
	assert.NotEmpty(t, p.memory.Of("old", "c"))

	// run has the managers write their states, as at the end of an agent.
	run := func(p *placement) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.NoError(t, errors.Join(p.cpus.Run(ctx), p.memory.Run(ctx)))
	}
	none := staticSettings(t, root, "--cpu-manager-policy=none", "--memory-manager-policy=None")
	p, _, err = opened(t, none, hostOf(8, 16), &listing{[]types.UID{"old"}})
	require.NoError(t, err)
	assert.Equal(t, "0,3-7", p.cpus.Shared().String())
	assert.Empty(t, p.sources(), "the policy none reports no exclusive CPUs")
	run(p)
	assert.FileExists(t, filepath.Join(root, cpus.CheckpointName))
	assert.FileExists(t, filepath.Join(root, memory.FileName))
	require.NoError(t, os.RemoveAll(filepath.Join(root, "pods")))
	p, _, err = opened(t, none, hostOf(8, 16), (*listing)(nil))
	require.NoError(t, err)
	run(p)
	assert.NoFileExists(t, filepath.Join(root, cpus.CheckpointName))
	assert.NoFileExists(t, filepath.Join(root, memory.FileName))
}

// A whole agent starts with states that cannot be read.
func TestAnAgentStartsWithBadStates(t *testing.T) {
	if _, err := numa.Read(os.DirFS("/")); err != nil {
		t.Skip(err)
	}
	b := newBench(t)
	b.put("web", "i")
	b.start()
	b.await("Status: Running", "describe", "web")
	b.stop()
	corrupt(t, filepath.Join(b.root, cpus.CheckpointName))
	b.start("--cpu-manager-policy=static", "--reserved-cpus=0")
	b.await("Status: Running", "describe", "web")
	data, err := os.ReadFile(filepath.Join(b.root, cpus.CheckpointName))
	require.NoError(t, err)
	assert.Equal(t, "{", string(data))
}

// The check asks the managers, as the agent does, and changes nothing.
func TestCheckOfManagers(t *testing.T) {
	none := []string{"--cpu-manager-policy=none", "--memory-manager-policy=None"}
	for name, tc := range map[string]struct {
		flags         []string
		host          fs.FS
		damage        bool
		running       []types.UID
		ofCPUs, ofMem check.Verdict
		blocks        int
	}{
		"all fits":                 {nil, hostOf(8, 16), false, []types.UID{"old"}, check.Kept, check.Kept, 0},
		"another machine":          {nil, hostOf(2, 8), false, []types.UID{"old"}, check.Lost, check.Lost, 2},
		"after a reboot":           {nil, hostOf(2, 8), false, nil, check.Lost, check.Lost, 0},
		"no policy":                {none, hostOf(8, 16), false, []types.UID{"old"}, check.Kept, check.Lost, 1},
		"no policy, nothing runs":  {none, hostOf(8, 16), false, nil, check.Lost, check.Lost, 0},
		"damaged":                  {nil, hostOf(8, 16), true, []types.UID{"any"}, check.Lost, check.Lost, 2},
		"damaged, and no policies": {none, hostOf(8, 16), true, []types.UID{"any"}, check.Lost, check.Lost, 2},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			leaveStates(t, staticSettings(t, root))
			if tc.damage {
				corrupt(t, filepath.Join(root, cpus.CheckpointName))
				corrupt(t, filepath.Join(root, memory.FileName))
			}
			before := tree(t, root)
			findings := checkManagers(t.Context(), staticSettings(t, root, tc.flags...), tc.host, &listing{tc.running})
			assert.Equal(t, before, tree(t, root))
			verdicts := map[string]check.Verdict{}
			for _, f := range findings {
				assert.NotEmpty(t, f.Why)
				assert.Equal(t, f.Blocks, f.Do != "")
				verdicts[f.Setting] = f.Verdict
			}
			assert.Equal(t, map[string]check.Verdict{cpus.CheckpointName: tc.ofCPUs, memory.FileName: tc.ofMem},
				verdicts)
			assert.Len(t, check.Report{Findings: findings}.Blocking(), tc.blocks)
		})
	}
	root := t.TempDir()
	assert.Empty(t, checkManagers(t.Context(), staticSettings(t, root), hostOf(8, 16), noRuntime{errors.New("no")}),
		"there is no state")
	require.NoError(t, os.Symlink(filepath.Join(root, cpus.CheckpointName), filepath.Join(root, cpus.CheckpointName)))
	findings := checkManagers(t.Context(), staticSettings(t, root), hostOf(8, 16), &listing{})
	require.Len(t, findings, 1)
	assert.Equal(t, check.Refused, findings[0].Verdict)
}
