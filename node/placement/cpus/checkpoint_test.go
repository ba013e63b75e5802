package cpus_test

import (
	_ "embed"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/cpuset"

	"github.com/kubeletkit/kubeletkit/node/placement/cpus"
)

// Written by kubelet 1.36.3 and 1.37.2, see TestCheckpointsOfKubelets in test/e2e. checkpointPods is by 1.37.2 and
// checkpointV3 by 1.36.3 with the feature gate PodLevelResourceManagers.
var (
	//go:embed testdata/kubelet.json
	checkpointV2 string
	//go:embed testdata/kubelet-1.37.json
	checkpointV4 string
	//go:embed testdata/pods-1.37.json
	checkpointPods string
)

const checkpointV3 = `{"policyName":"static","defaultCpuSet":"0-1,4-7","entries":{"0b6e9b3c-1111-4222-8333-444455556666":{"main":"2","side-car":"3"}},"checksum":1586839353}`

func TestCheckpointOfKubelet(t *testing.T) {
	want := cpus.Checkpoint{Policy: "static", Shared: cpuset.New(0, 1, 4, 5, 6, 7), Exclusive: cpus.Assignments{
		"0b6e9b3c-1111-4222-8333-444455556666": {"main": cpuset.New(2), "side-car": cpuset.New(3)},
	}}
	for _, data := range []string{checkpointV2, checkpointV3, strings.ReplaceAll(checkpointV2, "2999940735", "0"),
		checkpointV4, strings.Replace(checkpointV4, `"main":"2"`, `"main":"4"`, 1)} {
		got, err := cpus.ParseCheckpoint([]byte(data))
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
	assert.Equal(t, checkpointV2, string(cpus.FormatCheckpoint(want)), "kubelet reads it")

	want = cpus.Checkpoint{Policy: "static", Shared: set(t, "0-1,3-7,9-11"), Exclusive: cpus.Assignments{
		"shares": {"main": cpuset.New(2), "side-car": cpuset.New(8)}, "one": {"main": cpuset.New(4)},
	}, Pods: map[string]cpuset.CPUSet{"shares": cpuset.New(2, 8)}}
	want.Shared = want.Shared.Difference(cpuset.New(4))
	got, err := cpus.ParseCheckpoint([]byte(checkpointPods))
	require.NoError(t, err)
	assert.Equal(t, want, got)
	assert.Equal(t, checkpointPods, string(cpus.FormatCheckpoint(want)), "as kubelet writes it")
}

func TestBadCheckpoints(t *testing.T) {
	for data, want := range map[string]string{
		"": "unexpected end",
		strings.ReplaceAll(checkpointV2, `"main":"2"`, `"main":"4"`):           "its checksum is wrong",
		strings.Replace(checkpointV4, `main\":\"2`, `main\":\"4`, 1):           "its checksum is wrong",
		strings.Replace(checkpointV4, `"data":"{`, `"was":"{`, 1):              "its checksum is wrong",
		`{"policyName":"static","data":"{","dataChecksum":1234}`:               "its checksum is wrong",
		strings.Replace(checkpointPods, `cpuSet\":\"2,8`, `cpuSet\":\"2,9`, 1): "its checksum is wrong",
		`{"policyName":"static","defaultCpuSet":"0-x"}`:                        "defaultCpuSet",
		`{"policyName":"static","defaultCpuSet":"0-1000000000"}`:               "no ID as long",
		`{"policyName":"static","entries":{"a":{"b":"c"}}}`:                    `container "b" of pod "a"`,
		`{"policyName":"static","entries":{"a":[]}}`:                           `its entry "a"`,
		`{"policyName":"static","entries":{"a":{"":"1"}}}`:                     `a container of pod "a" has no name`,
		`{"policyName":"static","entries":{"4711":"2-3"}}`:                     "a kubelet before 1.18",
		`{"policyName":"static","podEntries":{"a":{"cpuSet":"1"}}}`:            "PodLevelResourceManagers",
	} {
		_, err := cpus.ParseCheckpoint([]byte(data))
		assert.ErrorContains(t, err, want, data)
	}
}

func FuzzParseCheckpoint(f *testing.F) {
	f.Add([]byte(checkpointV2))
	f.Add([]byte(checkpointV3))
	f.Add([]byte(checkpointV4))
	f.Add([]byte(checkpointPods))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := cpus.ParseCheckpoint(data)
		if err != nil {
			return
		}
		again, err := cpus.ParseCheckpoint(cpus.FormatCheckpoint(c))
		require.NoError(t, err)
		assert.True(t, c.Shared.Equals(again.Shared))
		assert.Len(t, again.Exclusive, len(c.Exclusive))
		assert.Len(t, again.Pods, len(c.Pods))
	})
}

func checkpoint(t *testing.T, c cpus.Checkpoint) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), cpus.CheckpointName)
	require.NoError(t, os.WriteFile(path, cpus.FormatCheckpoint(c), 0o600))
	return path
}

// The next agent keeps what the checkpoint has, and running containers get what they are to have.
func TestRestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), cpus.CheckpointName)
	m := newManager(t, "xeon-2n", path, &setter{}, cpus.Options{})
	a, b := guaranteed("a", 3), guaranteed("b", 2)
	allocate(t, m, a, b)
	require.NoError(t, prepare(t, m, a))

	m = newManager(t, "xeon-2n", path, &setter{}, cpus.Options{})
	require.NoError(t, m.Restore())
	assert.Equal(t, "1-3", m.Exclusive("a", "main").String())
	allocate(t, m, b, a, guaranteed("c", 1))
	assert.Equal(t, "1-3", m.Exclusive("a", "main").String())
	assert.Equal(t, "4-5", m.Exclusive("b", "main").String())
	end(t, m, a)
	require.NoError(t, prepare(t, m, b))
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	c, err := cpus.ParseCheckpoint(data)
	require.NoError(t, err)
	assert.Equal(t, "0-3,7-15", c.Shared.String())
	assert.Len(t, c.Exclusive, 2)
}

func TestStatesThatDoNotGoWithTheMachine(t *testing.T) {
	state := cpus.Checkpoint{Policy: "static", Shared: set(t, "0-15"), Exclusive: cpus.Assignments{
		"good": {"main": cpuset.New(1, 2)}, "offline": {"main": cpuset.New(15, 16)}, "reserved": {"main": cpuset.New(0)}, "twice": {"main": cpuset.New(2, 3)}, "void": {"main": cpuset.New()},
	}}
	path := checkpoint(t, state)
	m := newManager(t, "xeon-2n", path, &setter{}, cpus.Options{})
	err := m.Restore()
	stateErr := (*cpus.StateError)(nil)
	require.ErrorAs(t, err, &stateErr)
	assert.Equal(t, path, stateErr.Path)
	for _, want := range []string{
		"container main of pod offline has CPUs 15-16, of which 16 are not online",
		"container main of pod reserved has CPUs 0, of which 0 are reserved",
		"container main of pod twice has CPUs 2-3, of which pod good has 2", "pod void has CPUs , none",
		"Drain the node and remove the file, or start with a reset",
	} {
		assert.ErrorContains(t, err, want)
	}
	p := guaranteed("new", 1)
	assert.ErrorAs(t, m.Allocate(p, &p.Spec.Containers[0], noHint), &stateErr, "an agent that does not call Restore")

	m = newManager(t, "xeon-2n", path, &setter{}, cpus.Options{Reset: true})
	require.NoError(t, m.Restore())
	assert.Equal(t, "1-2", m.Exclusive("good", "main").String())
	assert.False(t, m.HasExclusive("twice"))
	twice := guaranteed("twice", 2)
	allocate(t, m, twice)
	assert.Equal(t, "3-4", m.Exclusive("twice", "main").String())

	require.NoError(t, os.WriteFile(path, []byte("{"), 0o600))
	require.ErrorAs(t, newManager(t, "xeon-2n", path, &setter{}, cpus.Options{}).Restore(), &stateErr)
	require.NoError(t, newManager(t, "xeon-2n", path, &setter{}, cpus.Options{Reset: true}).Restore())
}

// CPUs that come and go, and that are no container's, change the shared pool only.
func TestOtherCPUs(t *testing.T) {
	path := checkpoint(t, cpus.Checkpoint{Policy: "static", Shared: set(t, "0,3-31"),
		Exclusive: cpus.Assignments{"a": {"main": cpuset.New(1, 2)}}})
	m := newManager(t, "xeon-2n", path, &setter{}, cpus.Options{})
	require.NoError(t, m.Restore())
	assert.Equal(t, "0,3-15", m.Shared().String())
	require.NoError(t, prepare(t, m, guaranteed("a", 2)))
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Contains(t, string(data), `"defaultCpuSet":"0,3-15"`, "as kubelet requires it")
}

func TestStaticLeft(t *testing.T) {
	left := func(path string) bool {
		t.Helper()
		left, err := cpus.StaticLeft(path)
		require.NoError(t, err)
		return left
	}
	assert.False(t, left(filepath.Join(t.TempDir(), "none")))
	assert.False(t, left(checkpoint(t, cpus.Checkpoint{Policy: "none"})), "kubelet's own")
	assert.True(t, left(checkpoint(t, cpus.Checkpoint{Policy: "static", Shared: set(t, "0-15")})))
	assert.True(t, left(t.TempDir()), "it cannot be read")
}
