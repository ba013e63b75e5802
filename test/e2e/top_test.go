package e2e

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// aggregator serves metrics.k8s.io as metrics-server does: from two readings of /metrics/resource
// through the port of the node.
type aggregator struct {
	plane *ControlPlane

	mu          sync.Mutex
	older, last map[string]*dto.MetricFamily
}

// scrape reads the page of the node.
func (a *aggregator) scrape(ctx context.Context) error {
	data, err := a.plane.Client.CoreV1().RESTClient().Get().AbsPath("/api/v1/nodes/" + NodeName +
		"/proxy/metrics/resource").DoRaw(ctx)
	if err != nil {
		return err
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(string(data)))
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.older, a.last = a.last, families
	return nil
}

// usage returns the rate of the CPU time and the memory of each series that has the labels, by
// the value of the label key.
func (a *aggregator) usage(cpu, memory, key string, labels map[string]string) map[string]map[string]string {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := map[string]map[string]string{}
	of := func(m *dto.Metric, name string) string {
		for _, l := range m.GetLabel() {
			if l.GetName() == name {
				return l.GetValue()
			}
		}
		return ""
	}
	chosen := func(m *dto.Metric) bool {
		for name, want := range labels {
			if of(m, name) != want {
				return false
			}
		}
		return true
	}
	for _, now := range a.last[cpu].GetMetric() {
		for _, before := range a.older[cpu].GetMetric() {
			took := float64(now.GetTimestampMs()-before.GetTimestampMs()) / 1000
			if chosen(now) && fmt.Sprint(now.GetLabel()) == fmt.Sprint(before.GetLabel()) && took > 0 {
				rate := (now.GetCounter().GetValue() - before.GetCounter().GetValue()) / took
				out[of(now, key)] = map[string]string{"cpu": strconv.Itoa(int(rate*1e9)) + "n"}
			}
		}
	}
	for _, m := range a.last[memory].GetMetric() {
		if u := out[of(m, key)]; u != nil && chosen(m) {
			u["memory"] = strconv.Itoa(int(m.GetGauge().GetValue()))
		}
	}
	return out
}

func (a *aggregator) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	const root, version = "/apis/metrics.k8s.io/v1beta1", "metrics.k8s.io/v1beta1"
	w.Header().Set("Content-Type", "application/json")
	reply := func(v any) { _ = json.NewEncoder(w).Encode(v) }
	meta := func(name, namespace string) map[string]any {
		return map[string]any{"name": name, "namespace": namespace}
	}
	path := strings.TrimPrefix(req.URL.Path, root)
	switch parts := strings.Split(strings.Trim(path, "/"), "/"); {
	case path == "":
		reply(map[string]any{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": []any{
			map[string]any{"name": "nodes", "kind": "NodeMetrics", "namespaced": false,
				"verbs": []string{"get", "list"}},
			map[string]any{"name": "pods", "kind": "PodMetrics", "namespaced": true, "verbs": []string{"get", "list"}},
		}})
	case parts[0] == "nodes":
		var items []any
		for _, u := range a.usage("node_cpu_usage_seconds_total", "node_memory_working_set_bytes", "", nil) {
			items = append(items, map[string]any{"metadata": meta(NodeName, ""),
				"timestamp": time.Now().UTC().Format(time.RFC3339), "window": "10s", "usage": u})
		}
		reply(map[string]any{"kind": "NodeMetricsList", "apiVersion": version, "items": items})
	case len(parts) == 3 && parts[2] == "pods":
		items := []any{}
		in := map[string]string{"namespace": parts[1]}
		for pod := range a.usage("pod_cpu_usage_seconds_total", "pod_memory_working_set_bytes", "pod", in) {
			var containers []any
			for name, u := range a.usage("container_cpu_usage_seconds_total", "container_memory_working_set_bytes",
				"container", map[string]string{"namespace": parts[1], "pod": pod}) {
				containers = append(containers, map[string]any{"name": name, "usage": u})
			}
			items = append(items, map[string]any{"metadata": meta(pod, parts[1]),
				"timestamp": time.Now().UTC().Format(time.RFC3339), "window": "10s", "containers": containers})
		}
		reply(map[string]any{"kind": "PodMetricsList", "apiVersion": version, "items": items})
	default:
		http.NotFound(w, req)
	}
}

// register makes the aggregator an API of the control plane.
func (a *aggregator) register(t *testing.T, net *NetNS, listen string) {
	t.Helper()
	l, err := net.Listen(listen)
	require.NoError(t, err)
	srv := httptest.NewUnstartedServer(a)
	require.NoError(t, srv.Listener.Close())
	srv.Listener, srv.TLS = l, &tls.Config{}
	srv.StartTLS()
	t.Cleanup(srv.Close)
	_, port := splitPort(t, listen)
	a.plane.Apply(t, fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: metrics, namespace: kube-system}
spec: {type: ExternalName, externalName: localhost}
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1beta1.metrics.k8s.io}
spec:
  service: {name: metrics, namespace: kube-system, port: %s}
  group: metrics.k8s.io
  version: v1beta1
  insecureSkipTLSVerify: true
  groupPriorityMinimum: 100
  versionPriority: 100
`, port))
}

func splitPort(t *testing.T, addr string) (host, port string) {
	t.Helper()
	host, port, err := net.SplitHostPort(addr)
	require.NoError(t, err)
	return host, port
}

// kubectl top shows what a pod uses, with an API of resource metrics that reads the port of the
// node; minikubelet top shows it without one.
func TestTop(t *testing.T) {
	t.Parallel()
	s := newNodeSuite(t, AgentOptions{})
	s.start(t)
	ns := s.plane.Namespace(t, "top")
	s.plane.Kubectl(t, "run", "busy", "-n", ns, "--image", s.Registry.Image("busybox:1"), "--command", "--", "/bin/sh",
		"-c", "while true; do :; done")
	s.plane.Kubectl(t, "wait", "-n", ns, "--for=condition=Ready", "pod/busy", "--timeout=180s")
	a := &aggregator{plane: s.plane}
	a.register(t, s.Net, "127.0.0.1:4443")
	require.NoError(t, a.scrape(t.Context()))

	var out string
	Eventually(t, eventually, "kubectl top", func() (err error) { // other tests may leave it little CPU for a while
		time.Sleep(6 * time.Second) // the agent reads usage once in 5 s
		if err := a.scrape(t.Context()); err != nil {
			return err
		}
		if out, err = s.plane.TryKubectl(t, "", "top", "pods", "-n", ns, "--containers"); err != nil {
			return err
		}
		fields := strings.Fields(out)
		if len(fields) != 8 || fields[4] != "busy" || fields[5] != "busy" {
			return fmt.Errorf("want POD NAME CPU(cores) MEMORY(bytes), and a line:\n%s", out)
		}
		if millis, err := strconv.Atoi(strings.TrimSuffix(fields[6], "m")); err != nil || millis <= 100 {
			return fmt.Errorf("it uses more than that: %w\n%s", err, out)
		}
		return nil
	})
	t.Log(out)
	out = s.plane.Kubectl(t, "top", "nodes")
	assert.Contains(t, out, NodeName)
	assert.NotContains(t, out, "<unknown>")
	binary, line := MinikubeletBinary(t), regexp.MustCompile(ns+` +busy +[0-9]{3,}m +[0-9]+Mi\n$`)
	Eventually(t, eventually, "minikubelet top", func() error {
		top, err := exec.CommandContext(t.Context(), binary, "top", "-n", ns,
			"--root-dir", s.agent.Root).CombinedOutput()
		if err != nil || !line.Match(top) {
			return fmt.Errorf("%w\n%s", err, top)
		}
		return nil
	})
	s.plane.Kubectl(t, "delete", "pod", "-n", ns, "busy", "--grace-period=0", "--force")
}
