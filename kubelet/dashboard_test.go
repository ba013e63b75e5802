package kubelet

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/kubeletkit/kubeletkit/kubelet/internal/config"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// panel is a panel of a dashboard. Its queries read series; a label by which a query groups is
// there as label!="".
type panel struct {
	title  string
	series []string
}

// kubeletDashboard has the panels of the dashboard "Kubelet" of kubernetes-mixin, as of August 2026.
func kubeletDashboard() []panel {
	return []panel{
		{"Running Kubelets", []string{`kubelet_node_name`}},
		{"Running Pods", []string{`kubelet_running_pods`}},
		{"Running Containers", []string{`kubelet_running_containers{container_state="running"}`}},
		{"Actual Volume Count", []string{`volume_manager_total_volumes{state="actual_state_of_world"}`}},
		{"Desired Volume Count", []string{`volume_manager_total_volumes{state="desired_state_of_world"}`}},
		{"Config Error Count", []string{`kubelet_node_config_error`}},
		{"Operation Rate", []string{`kubelet_runtime_operations_total{operation_type!=""}`}},
		{"Operation Error Rate", []string{`kubelet_runtime_operations_errors_total{operation_type!=""}`}},
		{"Operation Duration 99th quantile", []string{`kubelet_runtime_operations_duration_seconds_bucket{operation_type!="",le!=""}`}},
		{"Pod Start Rate", []string{`kubelet_pod_start_duration_seconds_count`, `kubelet_pod_worker_duration_seconds_count`}},
		{"Pod Start Duration", []string{`kubelet_pod_start_duration_seconds_bucket{le!=""}`, `kubelet_pod_worker_duration_seconds_bucket{le!=""}`}},
		{"Storage Operation Rate", []string{`storage_operation_duration_seconds_count{operation_name!="",volume_plugin!=""}`}},
		{"Storage Operation Error Rate", []string{`storage_operation_errors_total{operation_name!="",volume_plugin!=""}`}},
		{"Storage Operation Duration 99th quantile", []string{`storage_operation_duration_seconds_bucket{operation_name!="",volume_plugin!="",le!=""}`}},
		{"Cgroup manager operation rate", []string{`kubelet_cgroup_manager_duration_seconds_count{operation_type!=""}`}},
		{"Cgroup manager 99th quantile", []string{`kubelet_cgroup_manager_duration_seconds_bucket{operation_type!="",le!=""}`}},
		{"PLEG relist rate", []string{`kubelet_pleg_relist_duration_seconds_count`}},
		{"PLEG relist interval", []string{`kubelet_pleg_relist_interval_seconds_bucket{le!=""}`}},
		{"PLEG relist duration", []string{`kubelet_pleg_relist_duration_seconds_bucket{le!=""}`}},
		{"RPC rate", []string{
			`rest_client_requests_total{code=~"2.."}`, `rest_client_requests_total{code=~"3.."}`,
			`rest_client_requests_total{code=~"4.."}`, `rest_client_requests_total{code=~"5.."}`,
		}},
		{"Request duration 99th quantile", []string{`rest_client_request_duration_seconds_bucket{verb!="",le!=""}`}},
		{"Memory", []string{`process_resident_memory_bytes`}},
		{"CPU usage", []string{`process_cpu_seconds_total`}},
		{"Goroutines", []string{`go_goroutines`}},
	}
}

// missing returns the series of the panel that a page does not have.
func (p panel) missing(page page) (out []string) {
	for _, s := range p.series {
		if !page.has(s) {
			out = append(out, s)
		}
	}
	return out
}

// page has the samples of a page of metrics by the names of their series.
type page map[string][]sample

type sample struct {
	labels map[string]string
	value  float64
}

var (
	sampleLine = regexp.MustCompile(`(?m)^([a-z_]+)(?:\{(.*)\})? (\S+)$`)
	labelValue = regexp.MustCompile(`([a-z_]+)="([^"]*)"`)
	labelMatch = regexp.MustCompile(`([a-z_]+)(!=|=~|=)"([^"]*)"`)
)

func pageOf(t *testing.T, text string) page {
	t.Helper()
	p := page{}
	for _, line := range sampleLine.FindAllStringSubmatch(text, -1) {
		value, err := strconv.ParseFloat(line[3], 64)
		require.NoError(t, err, line[0])
		labels := map[string]string{}
		for _, l := range labelValue.FindAllStringSubmatch(line[2], -1) {
			labels[l[1]] = l[2]
		}
		p[line[1]] = append(p[line[1]], sample{labels, value})
	}
	return p
}

// has reports whether the page has a series that a selector of PromQL selects. One of a
// histogram must have counted something: there is no quantile of nothing.
func (p page) has(selector string) bool {
	name, matchers, _ := strings.Cut(selector, "{")
	for _, sample := range p[name] {
		matches := true
		for _, m := range labelMatch.FindAllStringSubmatch(matchers, -1) {
			got, op, want := sample.labels[m[1]], m[2], m[3]
			switch op {
			case "=":
				matches = matches && got == want
			case "!=":
				matches = matches && got != want
			case "=~":
				matches = matches && regexp.MustCompile("^(?:"+want+")$").MatchString(got)
			}
		}
		if matches && (sample.value > 0 || !strings.HasSuffix(name, "_bucket")) {
			return true
		}
	}
	return false
}

// emptyPanels returns the panels that are empty by docs/operate/metrics.md: on every node, on a node without a cluster,
// and on one without cgroups of pods, which those of tests have if root runs them.
func emptyPanels(t *testing.T) (always, standalone, without map[string]bool) {
	t.Helper()
	data, err := os.ReadFile("../docs/operate/metrics.md")
	require.NoError(t, err)
	_, section, ok := strings.Cut(string(data), "### Kubelet\n")
	require.True(t, ok)
	section, _, _ = strings.Cut(section, "\n#")
	always, standalone, without = map[string]bool{}, map[string]bool{}, map[string]bool{}
	for line := range strings.Lines(section) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 || strings.HasPrefix(line, "| panel") || strings.HasPrefix(line, "|---") {
			continue
		}
		panels := always
		if strings.Contains(cells[3], "without a cluster") {
			panels = standalone
		}
		if strings.Contains(cells[3], "without cgroups") {
			panels = without
		}
		for title := range strings.SplitSeq(cells[1], ",") {
			panels[strings.TrimSpace(title)] = true
		}
	}
	require.NotEmpty(t, always)
	require.NotEmpty(t, standalone)
	return always, standalone, without
}

// The panels of the dashboard "Kubelet" show an agent, except for those that docs/operate/metrics.md names:
// each series that their queries read is on /metrics, with its labels.
func TestDashboard(t *testing.T) {
	t.Parallel()
	always, standalone, without := emptyPanels(t)
	// It has no event stream, so it is listed each second; one of its calls fails.
	b := newBenchOn(t, fake.Options{Without: []string{"GetContainerEvents"}})
	b.rt.Inject(fake.Fault{Call: "ListPodSandbox", Skip: 2, Times: 1, Err: errors.New("busy")})
	write(t, filepath.Join(b.manifests, "web.yaml"),
		"apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n  containers:\n  - {name: c, image: i, "+
			"volumeMounts: [{name: data, mountPath: /data}]}\n  volumes: [{name: data, emptyDir: {}}]\n")
	port := freePort(t)
	b.start(withPort(t, port)...)

	var shown page
	var missing []string
	require.Eventually(t, func() bool {
		_, text := ask(t, port, http.MethodGet, "/metrics", "")
		shown, missing = pageOf(t, text), nil
		for _, p := range kubeletDashboard() {
			if !always[p.title] && !standalone[p.title] && !without[p.title] {
				missing = append(missing, p.missing(shown)...)
			}
		}
		return len(missing) == 0
	}, time.Minute, 100*time.Millisecond, "%s", &missing)
	titles := map[string]bool{}
	for _, p := range kubeletDashboard() {
		titles[p.title] = true
		if always[p.title] || standalone[p.title] {
			assert.Len(t, p.missing(shown), len(p.series), "%s is not empty", p.title)
		}
	}
	for _, empty := range []map[string]bool{always, standalone, without} {
		for title := range empty {
			assert.True(t, titles[title], "the dashboard has no panel %q", title)
		}
	}
}

// The panels of requests to an API server show those of an agent that is in a cluster.
func TestDashboardInACluster(t *testing.T) {
	_, standalone, _ := emptyPanels(t)
	apiServer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		code, err := strconv.Atoi(strings.TrimPrefix(req.URL.Path, "/"))
		assert.NoError(t, err)
		w.WriteHeader(code)
	}))
	defer apiServer.Close()
	m, err := newMetrics(logr.Discard())
	require.NoError(t, err)
	client, err := rest.HTTPClientFor(restConfig(&config.Settings{}, m, &rest.Config{Host: apiServer.URL}))
	require.NoError(t, err)
	defer client.CloseIdleConnections()
	for _, code := range []int{200, 304, 404, 500} {
		resp, err := client.Get(fmt.Sprintf("%s/%d", apiServer.URL, code))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
	}
	rec := httptest.NewRecorder()
	m.handler.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	shown := pageOf(t, rec.Body.String())
	for _, p := range kubeletDashboard() {
		if standalone[p.title] {
			assert.Empty(t, p.missing(shown), p.title)
		}
	}
}

// The agent has each metric that the dashboards, rules and alerts of testdata/dashboard-metrics.txt read, or the file
// has the reason.
func TestMetricsOfDashboards(t *testing.T) {
	has := registered(t)
	doc, err := os.ReadFile("../docs/operate/metrics.md")
	require.NoError(t, err)
	_, cadvisor, ok := strings.Cut(string(doc), "\n## /metrics/cadvisor\n")
	require.True(t, ok)
	cadvisor, _, ok = strings.Cut(cadvisor, "\n- Missing: ")
	require.True(t, ok)
	list, err := os.ReadFile("testdata/dashboard-metrics.txt")
	require.NoError(t, err)
	for line := range strings.Lines(string(list)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		text, reason, missing := strings.Cut(strings.TrimSpace(line), ": ")
		name := strings.Fields(text)[0]
		_, found := has[name]
		found = found || strings.Contains(cadvisor, "`"+name+"`")
		assert.Equal(t, !missing, found, "%s: %s", name, reason)
	}
}
