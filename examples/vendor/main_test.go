package main

import (
	"archive/tar"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/kubelet"
	"github.com/kubeletkit/kubeletkit/node/volume"
	"github.com/kubeletkit/kubeletkit/node/volume/volumetest"
	"github.com/kubeletkit/kubeletkit/podconfig"
	podconfigfake "github.com/kubeletkit/kubeletkit/podconfig/fake"
	"github.com/kubeletkit/kubeletkit/prober"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
	"github.com/kubeletkit/kubeletkit/runtime/process"
)

func TestMain(m *testing.M) {
	process.Init()
	goleak.VerifyTestMain(m)
}

func makePod(name string, change func(*v1.Pod)) *v1.Pod {
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name),
			Labels: map[string]string{"team": "a"}, Annotations: map[string]string{}},
		Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main", Image: "image:1"}}},
	}
	change(pod)
	return pod
}

func TestTheVendorsAgent(t *testing.T) {
	dir, err := os.MkdirTemp("", "vendor") // short: it has sockets
	require.NoError(t, err)
	defer os.RemoveAll(dir)
	archive := filepath.Join(dir, "model.tar")
	writeTar(t, archive, map[string]string{"a/weights": "42"})
	address := freeAddress(t)
	rt, source := fake.New(fake.Options{}), podconfigfake.NewSource("test")
	defer rt.Close()
	opts := options()
	opts.Runtime, opts.Sources = rt, []podconfig.Source{source}
	opts.Logger = logr.FromSlogHandler(slog.DiscardHandler)
	_, port, err := net.SplitHostPort(address)
	require.NoError(t, err)
	config, err := kubelet.Load([]string{"--root-dir", filepath.Join(dir, "root"), "--healthz-port=0",
		"--fail-swap-on=false", "--fail-cgroupv1=false", "--enable-server=false", "--address=127.0.0.1",
		"--read-only-port=" + port}, opts)
	require.NoError(t, err)
	k, err := kubelet.New(t.Context(), config)
	require.NoError(t, err)
	agent := k.Agent()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- k.Run(ctx) }()
	defer func() {
		cancel()
		require.NoError(t, <-done)
	}()

	yes := true
	source.Set(
		makePod("plain", func(*v1.Pod) {}),
		makePod("nobodys", func(p *v1.Pod) { p.Labels = nil }),
		makePod("root",
			func(p *v1.Pod) { p.Spec.Containers[0].SecurityContext = &v1.SecurityContext{Privileged: &yes} }),
		makePod("device", func(p *v1.Pod) { p.Annotations[modbusAnnotation+"main"] = "no port" }),
		makePod("model", func(p *v1.Pod) {
			p.Spec.Volumes = []v1.Volume{{Name: "m", VolumeSource: v1.VolumeSource{FlexVolume: &v1.FlexVolumeSource{
				Driver: "vendor.example/tarball", Options: map[string]string{"file": archive}}}}}
			p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "m", MountPath: "/model"}}
		}),
	)
	status := func(name string) v1.PodStatus {
		for _, p := range agent.Pods() {
			if p.Name == name {
				return p.Status
			}
		}
		return v1.PodStatus{}
	}
	eventually := func(what string, cond func() bool) {
		t.Helper()
		require.Eventually(t, cond, 30*time.Second, 20*time.Millisecond, what)
	}
	eventually("a pod runs and is ready", func() bool { return ready(status("plain")) })
	eventually("a pod without the label is refused", func() bool { return status("nobodys").Reason == "MissingLabel" })
	eventually("a privileged pod fails for good", func() bool {
		s := status("root")
		return s.Phase == v1.PodFailed && s.Reason == "Privileged"
	})
	eventually("a pod with a tarball runs", func() bool { return status("model").Phase == v1.PodRunning })
	data, err := os.ReadFile(filepath.Join(dir, "root/pods/model/volumes/vendor.example~tarball/m/a/weights"))
	require.NoError(t, err)
	assert.Equal(t, "42", string(data))
	eventually("a device that cannot be probed runs and is not ready",
		func() bool { return status("device").Phase == v1.PodRunning })
	assert.False(t, ready(status("device")), "%+v", status("device"))

	eventually("the metric is beside those of kubelet", func() bool {
		res, err := http.Get("http://" + address + "/metrics")
		if err != nil {
			return false
		}
		defer func() { _ = res.Body.Close() }()
		text, _ := io.ReadAll(res.Body)
		http.DefaultClient.CloseIdleConnections()
		return res.StatusCode == 200 && strings.Contains(string(text), "\nvendor_modbus_failures_total ")
	})
}

func ready(s v1.PodStatus) bool {
	for _, c := range s.Conditions {
		if c.Type == v1.PodReady {
			return c.Status == v1.ConditionTrue
		}
	}
	return false
}

func TestTarballConforms(t *testing.T) {
	archive := filepath.Join(t.TempDir(), "model.tar")
	writeTar(t, archive, map[string]string{"a/weights": "42"})
	volumetest.Suite(t, volumetest.Factory{
		New: func(*testing.T) volume.Plugin { return tarball{} },
		Volume: v1.Volume{Name: "m", VolumeSource: v1.VolumeSource{FlexVolume: &v1.FlexVolumeSource{
			Driver: "vendor.example/tarball", Options: map[string]string{"file": archive},
		}}},
	})
}

func TestModbus(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	answers := make(chan []byte, 1)
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.ReadFull(conn, make([]byte, 12))
			_, _ = conn.Write(<-answers)
			_ = conn.Close()
		}
	}()
	defer func() {
		_ = l.Close()
		<-closed
	}()
	_, port, err := net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	pod := makePod("device", func(p *v1.Pod) { p.Annotations[modbusAnnotation+"main"] = port })
	container := &pod.Spec.Containers[0]
	handler := modbus{prometheus.NewCounter(prometheus.CounterOpts{Name: "failures"})}
	require.NotNil(t, handler.Probe(pod, container, runtime.ReadinessProbe))
	require.Nil(t, handler.Probe(pod, container, runtime.LivenessProbe))
	check := func(answer string) prober.Outcome {
		answers <- []byte(answer)
		outcome, _, err := handler.Check(t.Context(), prober.Target{Pod: pod, Container: container,
			Address: "127.0.0.1"})
		require.NoError(t, err)
		return outcome
	}
	assert.Equal(t, prober.Success, check("\x00\x01\x00\x00\x00\x05\x01\x03\x02\x00\x2a"))
	assert.Equal(t, prober.Failure, check("nonsense"[:3]))
}

// freeAddress returns an address that nobody listens on. Its port is none of those that the kernel
// gives to connections and to listeners that ask for any, so that nobody takes it before the agent
// does.
func freeAddress(t *testing.T) string {
	t.Helper()
	for range 1000 {
		if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 10_000+rand.IntN(20_000))); err == nil {
			defer func() { _ = l.Close() }()
			return l.Addr().String()
		}
	}
	t.Fatal("no free port")
	return ""
}

func writeTar(t *testing.T, name string, files map[string]string) {
	t.Helper()
	f, err := os.Create(name)
	require.NoError(t, err)
	w := tar.NewWriter(f)
	for path, text := range files {
		require.NoError(t, w.WriteHeader(&tar.Header{Name: path, Typeflag: tar.TypeReg, Mode: 0o644,
			Size: int64(len(text))}))
		_, err := io.WriteString(w, text)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	require.NoError(t, f.Close())
}
