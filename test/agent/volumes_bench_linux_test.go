package agent_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/node/volume"
	"github.com/kubeletkit/kubeletkit/podconfig"
	podconfigfake "github.com/kubeletkit/kubeletkit/podconfig/fake"
	"github.com/kubeletkit/kubeletkit/podconfig/objects"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// volumeNode is an agent on a runtime in memory, in real time.
type volumeNode struct {
	root   string
	rt     *fake.Runtime
	source *podconfigfake.Source
	store  *objects.Store
}

// oneToken is a token that does not expire.
type oneToken struct{}

func (oneToken) Token(context.Context,
	string, string, *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
	return &authenticationv1.TokenRequest{Status: authenticationv1.TokenRequestStatus{Token: "token"}}, nil
}

func startVolumeNode(b *testing.B) *volumeNode {
	b.Helper()
	dir := b.TempDir()
	n := &volumeNode{
		root: filepath.Join(dir, "root"), rt: fake.New(fake.Options{Images: []string{"busybox:1"},
			Dir: dir, Calls: -1}),
		source: podconfigfake.NewSource("test"), store: objects.New(),
	}
	host := n.rt.Host()
	agent, err := kubeletkit.New(kubeletkit.Options{
		NodeName: host.NodeName, RootDir: n.root, Host: host,
		Runtime: n.rt, Sources: []podconfig.Source{n.source}, API: kubeletkit.API{Objects: n.store, Tokens: oneToken{}},
	})
	require.NoError(b, err)
	ctx, stop := context.WithCancel(context.WithoutCancel(b.Context())) // b.Context ends before the cleanup
	done := make(chan error, 1)                                         // one value, of the one goroutine
	go func() { done <- agent.Run(ctx) }()
	b.Cleanup(func() {
		n.source.Set()
		n.await(func() bool { return n.dirs() == 0 })
		stop()
		require.NoError(b, <-done)
		require.NoError(b, n.rt.Close())
	})
	n.setConfig("1")
	return n
}

func (n *volumeNode) await(reached func() bool) {
	for !reached() {
		time.Sleep(5 * time.Millisecond)
	}
}

func (n *volumeNode) dirs() int {
	entries, _ := os.ReadDir(filepath.Join(n.root, "pods"))
	return len(entries)
}

func (n *volumeNode) setConfig(data string) {
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "default", Name: name} }
	n.store.Set(
		&v1.ConfigMap{ObjectMeta: meta("root-ca"), Data: map[string]string{"ca.crt": "certificate"}},
		&v1.ConfigMap{ObjectMeta: meta("config"), Data: map[string]string{"key": data, "other": data}},
		&v1.Secret{ObjectMeta: meta("secret"), Data: map[string][]byte{"password": []byte("hunter-1")}})
}

// run has n pods run, with five volumes each or with none.
func (n *volumeNode) run(count int, volumes bool) []*v1.Pod {
	var pods []*v1.Pod
	for i := range count {
		pod := onePod(fmt.Sprintf("web-%d", i))
		pod.Namespace = "default"
		if volumes {
			config := func(name string) v1.VolumeSource {
				return v1.VolumeSource{
					ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: name}}}
			}
			for i, source := range []v1.VolumeSource{
				config("root-ca"), config("config"), {Secret: &v1.SecretVolumeSource{SecretName: "secret"}},
				{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token"}}}}},
				{EmptyDir: &v1.EmptyDirVolumeSource{}},
			} {
				testpod.Volumes(v1.Volume{Name: fmt.Sprintf("v%d", i), VolumeSource: source})(pod)
			}
		}
		pods = append(pods, pod)
	}
	n.source.Set(pods...)
	n.await(func() bool { return len(n.rt.Running(fake.Target{})) == count })
	return pods
}

// cpu returns the CPU time of this process.
func cpu(b testing.TB) time.Duration {
	b.Helper()
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkIdleVolumes measures the CPU time of agent and runtime, in a percentage of a core,
// while 500 pods run and nothing happens: with five volumes each, and without. The window has one resync of each pod.
// It takes 5 minutes.
//
//	go test -run '^$' -bench IdleVolumes -benchtime 1x .
func BenchmarkIdleVolumes(b *testing.B) {
	const pods, window = 500, 62 * time.Second
	for b.Loop() {
		share := map[bool]float64{}
		for _, volumes := range []bool{false, true} {
			b.Run(fmt.Sprintf("volumes=%t", volumes), func(b *testing.B) {
				n := startVolumeNode(b)
				n.run(pods, volumes)
				time.Sleep(window + 5*time.Second) // the first resync compares all files
				before := cpu(b)
				time.Sleep(window)
				share[volumes] = 100 * (cpu(b) - before).Seconds() / window.Seconds()
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(share[volumes], "percent-of-a-core")
			})
		}
		b.ReportMetric(share[true]/share[false], "ratio")
	}
	b.ReportMetric(0, "ns/op")
}

// BenchmarkVolumesStart starts 100 pods on a runtime in memory, with five volumes each and
// without, and reports the CPU time of agent and runtime for each pod.
func BenchmarkVolumesStart(b *testing.B) {
	const pods = 100
	took := map[bool]time.Duration{}
	for b.Loop() {
		for _, volumes := range []bool{false, true} {
			b.Run(fmt.Sprintf("volumes=%t", volumes), func(b *testing.B) {
				n := startVolumeNode(b)
				time.Sleep(time.Second)
				before := cpu(b)
				n.run(pods, volumes)
				d := cpu(b) - before
				took[volumes] += d
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(float64(d.Microseconds())/pods, "cpu-µs/pod")
			})
		}
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64((took[true]-took[false]).Microseconds())/float64(b.N*pods), "volumes-cpu-µs/pod")
}

// BenchmarkConfigMapChange changes a config map that 200 pods have as files, and measures until
// all files are new.
//
//	go test -run '^$' -bench ConfigMapChange -benchtime 10x .
func BenchmarkConfigMapChange(b *testing.B) {
	n := startVolumeNode(b)
	pods := n.run(200, true)
	files := make([]string, len(pods))
	for i, pod := range pods {
		files[i] = filepath.Join(volume.PlaceOf(filepath.Join(n.root, "pods", string(pod.UID)),
			volume.ConfigMap{}.Name(), "v1").Dir, "key")
	}
	time.Sleep(5 * time.Second)
	version := 1
	var took, slowest, used time.Duration
	for b.Loop() {
		version++
		data := fmt.Sprint(version)
		before, began := cpu(b), time.Now()
		n.setConfig(data)
		for _, file := range files {
			n.await(func() bool {
				got, err := os.ReadFile(file)
				return err == nil && string(got) == data
			})
		}
		d := time.Since(began)
		took, slowest, used = took+d, max(slowest, d), used+cpu(b)-before
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(took.Seconds()/float64(b.N), "s")
	b.ReportMetric(slowest.Seconds(), "s-max")
	b.ReportMetric(used.Seconds()/float64(b.N), "cpu-s")
}
