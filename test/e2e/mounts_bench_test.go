package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// The contestants of BenchmarkMounts besides the bare client, which mounts no volumes.
const (
	fiveMounts  = "five"  // five directories, four of them read-only
	fiveInTmpfs = "tmpfs" // the same, two of them a tmpfs of each pod's own, mounted before the start
)

// BenchmarkMounts measures what five mounts cost the runtime: no agent starts pods with five
// volumes faster than the contestant "five", a bare client that finds the volumes ready. "ratio"
// is that to the same pods without volumes. The units are those of BenchmarkColdStart.
//
//	KUBELETKIT_E2E_PODS=100 go test -run '^$' -bench Mounts -benchtime 3x -timeout 60m
func BenchmarkMounts(b *testing.B) {
	forEachSize(b, "100", benchmarkMounts)
}

func benchmarkMounts(b *testing.B, n int) {
	c := benchCluster(b)
	var bare []Pod
	first := benchPods("mounts", n)
	agentRound(b, c, AgentOptions{}, first, func(*Agent) { bare = bareCopies(b, c, first) }, func(string, float64) {})
	list := []contestant{{name: bareClient}, {name: fiveMounts}, {name: fiveInTmpfs}}
	pods := map[string][]Pod{bareClient: bare}
	for _, who := range list[1:] {
		pods[who.name] = withMounts(b, bare, who.name)
	}
	bareRound(b, c, bare, func(string, float64) {})
	took := samples{}
	takeTurns(b, list, func(who contestant) {
		if who.name == fiveInTmpfs {
			mountAll(b, pods[who.name])
			defer unmountAll(b, pods[who.name])
		}
		bareRound(b, c, pods[who.name], func(unit string, v float64) { took.add(who.name, unit, v) })
	})
	took.report(b, list, "s", bareClient, func(name string) map[string]float64 {
		return map[string]float64{
			"runtime-ratio": median(took[name]["runtime-cpu-s"]) / median(took[bareClient]["runtime-cpu-s"])}
	})
}

// withMounts returns copies of the pods with five directories mounted as volumePod mounts its
// volumes. The last one can be written.
func withMounts(b *testing.B, pods []Pod, kind string) []Pod {
	b.Helper()
	dir := b.TempDir()
	copies := make([]Pod, len(pods))
	for i, pod := range pods {
		config := proto.CloneOf(pod.Containers[0])
		for k := range 5 {
			path := filepath.Join(dir, fmt.Sprintf("%s-%d-%d", kind, i, k))
			if err := os.Mkdir(path, 0o777); err != nil {
				b.Fatal(err)
			}
			config.Mounts = append(config.Mounts, &cri.Mount{ContainerPath: fmt.Sprintf("/mnt/v%d", k),
				HostPath: path, Readonly: k < 4})
		}
		copies[i] = Pod{Sandbox: pod.Sandbox, Containers: []*cri.ContainerConfig{config}}
	}
	return copies
}

// inMemory returns the directories that are to be in memory: those of the secret and the token.
func inMemory(pods []Pod) (dirs []string) {
	for _, pod := range pods {
		mounts := pod.Containers[0].Mounts
		for _, mount := range mounts[len(mounts)-3 : len(mounts)-1] {
			dirs = append(dirs, mount.HostPath)
		}
	}
	return dirs
}

func mountAll(b *testing.B, pods []Pod) {
	b.Helper()
	for _, dir := range inMemory(pods) {
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, ""); err != nil {
			b.Fatal(err)
		}
	}
}

func unmountAll(b *testing.B, pods []Pod) {
	b.Helper()
	for _, dir := range inMemory(pods) {
		if err := unix.Unmount(dir, 0); err != nil {
			b.Error(err)
		}
	}
}
