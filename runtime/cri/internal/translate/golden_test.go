package translate

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// goldenCase is a pod and what kubelet makes of it; see testdata/kubelet/README.md.
type goldenCase struct {
	Name string
	Node struct {
		CgroupV2, SwapControl, KillProcessesSingly, SeccompDefault, RRO, NoResolvConf bool

		ClusterDNS    []string
		ClusterDomain string
		HugepageSizes []string
		// SwapCapacity is the swap of the machine, if containers may use some. The limits are those of node/swap.
		SwapCapacity int64
	}
	ResolvConf   string
	Target       string
	PodIPs       []string
	RestartCount int32
	Pod          *v1.Pod
	Sandbox      goldenResult
	Hosts        string
	Containers   map[string]goldenResult
	Events       []string
}

type goldenResult struct {
	Config any
	Error  string
}

func (g *goldenCase) pod(t *testing.T) *Pod {
	conf, err := ParseResolvConf([]byte(g.ResolvConf))
	require.NoError(t, err)
	host := &runtime.Host{
		NodeName: "node-a",
		IPs:      []string{"192.0.2.1", "2001:db8::1"},
		Allocatable: v1.ResourceList{
			v1.ResourceCPU:              resource.MustParse("3500m"),
			v1.ResourceMemory:           resource.MustParse("7Gi"),
			v1.ResourceEphemeralStorage: resource.MustParse("100G"),
		},
		ClusterDNS:    g.Node.ClusterDNS,
		ClusterDomain: g.Node.ClusterDomain,
		ResolvConf:    "/etc/resolv.conf",
		PodLogsDir:    "/var/log/pods",
	}
	if g.Node.NoResolvConf {
		host.ResolvConf = ""
	}
	return &Pod{
		Spec:       g.Pod,
		Host:       host,
		ResolvConf: conf,
		Node: &Node{
			MemoryCapacity:      8 << 30,
			HugepageSizes:       g.Node.HugepageSizes,
			CgroupV2:            g.Node.CgroupV2,
			SwapControl:         g.Node.SwapControl,
			KillProcessesSingly: g.Node.KillProcessesSingly,
			SeccompDefault:      g.Node.SeccompDefault,
			SeccompProfileRoot:  "/seccomp",
		},
	}
}

func (g *goldenCase) container(pod *Pod, c *v1.Container, kind podspec.ContainerKind) *Container {
	in := &Container{
		Pod:          pod,
		Spec:         c,
		Kind:         kind,
		RestartCount: g.RestartCount,
		PodIPs:       g.PodIPs,
		Image:        Image{Ref: "sha256:" + c.Image},
		Volumes:      map[string]runtime.Volume{},
		SubPath: func(_ context.Context, req runtime.SubPath) (string, error) {
			return path.Join(req.Volume.HostPath, req.Path), nil
		},
		RecursiveReadOnly:  g.Node.RRO,
		HostsPath:          "/hosts",
		TerminationLogPath: "/termination-log",
	}
	if kind == podspec.EphemeralContainer {
		in.TargetID = g.Target
	}
	if user, ok := strings.CutPrefix(c.Image, "user-"); ok {
		if uid, err := strconv.ParseInt(user, 10, 64); err == nil {
			in.Image.UID = &uid
		} else {
			in.Image.Username = user
		}
	}
	if g.Node.SwapCapacity > 0 {
		if n, err := strconv.ParseInt(unified(g.Containers[c.Name].Config)["memory.swap.max"], 10, 64); err == nil &&
			n > 0 {
			in.Edits.MemorySwap = &n
		}
	}
	for _, v := range g.Pod.Spec.Volumes {
		in.Volumes[v.Name] = runtime.Volume{HostPath: "/vol/" + v.Name, ReadOnly: strings.HasPrefix(v.Name, "ro-"),
			Relabel: true}
	}
	return in
}

// TestAsKubelet compares with what kubelet itself has made of the same pods.
func TestAsKubelet(t *testing.T) {
	f, err := os.Open("testdata/kubelet/golden.jsonl")
	require.NoError(t, err)
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var g goldenCase
		require.NoError(t, json.Unmarshal(lines.Bytes(), &g))
		t.Run(g.Name, func(t *testing.T) {
			before := g.Pod.DeepCopy()
			pod := g.pod(t)
			config, err := SandboxConfig(pod, 3)
			sameResult(t, g.Sandbox, config, err)
			assert.Equal(t, g.warnings(podspec.IsStatic(pod.Spec)), Warnings(pod))
			for kind, c := range podspec.Containers(&g.Pod.Spec) {
				if g.Sandbox.Error != "" {
					break // a pod without a sandbox has no containers
				}
				t.Run(c.Name, func(t *testing.T) {
					config, err := ContainerConfig(t.Context(), g.container(pod, c, kind))
					sameResult(t, g.Containers[c.Name], config, err)
				})
			}
			if g.Hosts != "" {
				hosts, err := HostsFile(pod, g.PodIPs, []byte("127.0.0.1\tnode\n"))
				require.NoError(t, err)
				assert.Equal(t, g.Hosts, string(hosts))
			}
			assert.Equal(t, before, g.Pod, "the pod was changed")
		})
	}
	require.NoError(t, lines.Err())
}

// warnings are kubelet's events about the pod.
func (g *goldenCase) warnings(static bool) []Warning {
	var out []Warning
	for _, e := range g.Events {
		_, e, _ = strings.Cut(e, " ")
		reason, message, _ := strings.Cut(e, " ")
		if reason == reasonNoCluster && (static || strings.HasPrefix(message, "kubelet")) {
			// the latter is about the node
			continue
		}
		out = append(out, Warning{reason, message})
	}
	return out
}

// sameResult compares as JSON, without the order of what kubelet leaves to chance.
func sameResult[T any](t *testing.T, want goldenResult, config *T, err error) {
	t.Helper()
	if want.Error != "" {
		assert.EqualError(t, err, want.Error)
		return
	}
	require.NoError(t, err)
	raw, err := json.Marshal(config)
	require.NoError(t, err)
	var got any
	require.NoError(t, json.Unmarshal(raw, &got))
	assert.Equal(t, pretty(t, want.Config), pretty(t, got))
}

func pretty(t *testing.T, config any) string {
	m, ok := config.(map[string]any)
	require.True(t, ok)
	if envs, ok := m["envs"].([]any); ok {
		slices.SortFunc(envs, func(a, b any) int {
			return cmp.Compare(a.(map[string]any)["key"].(string), b.(map[string]any)["key"].(string))
		})
	}
	if dns, ok := m["dns_config"].(map[string]any); ok {
		if options, ok := dns["options"].([]any); ok {
			slices.SortFunc(options, func(a, b any) int { return cmp.Compare(a.(string), b.(string)) })
		}
	}
	raw, err := json.MarshalIndent(m, "", "  ")
	require.NoError(t, err)
	return string(raw)
}

// unified returns the settings of cgroup v2 in a configuration of kubelet.
func unified(config any) map[string]string {
	var c struct {
		Linux struct {
			Resources struct{ Unified map[string]string }
		}
	}
	data, err := json.Marshal(config)
	if err != nil || json.Unmarshal(data, &c) != nil {
		return nil
	}
	return c.Linux.Resources.Unified
}
