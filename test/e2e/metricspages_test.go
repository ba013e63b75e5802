package e2e

import (
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// metricsPages are the pages that TestMetricsPages compares.
var metricsPages = []string{"/metrics", "/metrics/resource", "/metrics/cadvisor", "/metrics/probes", "/metrics/slis"}

// family is the type of a metric, and the names of the labels of its series, sorted.
type family struct {
	typ    string
	labels string
}

// metricsFamilies returns the families of all pages, by "<page> <name>".
func metricsFamilies(agent *Agent) (map[string]family, error) {
	found := map[string]family{}
	for _, page := range metricsPages {
		body, err := agent.Get(page)
		if err != nil {
			return nil, err
		}
		parser := expfmt.NewTextParser(model.LegacyValidation)
		families, err := parser.TextToMetricFamilies(strings.NewReader(string(body)))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", page, err)
		}
		for name, f := range families {
			found[page+" "+name] = family{strings.ToLower(f.GetType().String()), labelNames(f)}
		}
	}
	return found, nil
}

// labelNames returns the sets of names that the series of the family have, as "{a,b}{a,b,c}".
func labelNames(f *dto.MetricFamily) string {
	sets := map[string]bool{}
	for _, m := range f.GetMetric() {
		names := slices.Sorted(maps.Keys(labelsOf(m)))
		sets["{"+strings.Join(names, ",")+"}"] = true
	}
	return strings.Join(slices.Sorted(maps.Keys(sets)), "")
}

// metricsDifferences returns how the families of the agent differ from those of kubelet, by "<page> <name>": "missing",
// "extra", "type" or "labels", and what they are.
func metricsDifferences(ours, kubelets map[string]family) map[string][2]string {
	diffs := map[string][2]string{}
	for key, k := range kubelets {
		switch o, ok := ours[key]; {
		case !ok:
			diffs[key] = [2]string{"missing", k.typ + " " + k.labels}
		case o.typ != k.typ:
			diffs[key] = [2]string{"type", o.typ + ", kubelet: " + k.typ}
		case o.labels != k.labels:
			diffs[key] = [2]string{"labels", o.labels + ", kubelet: " + k.labels}
		}
	}
	for key, o := range ours {
		if _, ok := kubelets[key]; !ok {
			diffs[key] = [2]string{"extra", o.typ + " " + o.labels}
		}
	}
	return diffs
}

// listedDifference is a line of testdata/metrics.txt.
type listedDifference struct {
	page, kind, pattern string
	used                bool
}

func (l *listedDifference) matches(page, name string) bool {
	matches, _ := path.Match(l.pattern, name)
	return matches && l.page == page
}

// in reports whether one of the families matches.
func (l *listedDifference) in(families map[string]family) bool {
	for key := range families {
		if page, name, _ := strings.Cut(key, " "); l.matches(page, name) {
			return true
		}
	}
	return false
}

// readDifferences reads testdata/metrics.txt.
func readDifferences(t *testing.T) (list []*listedDifference) {
	data, err := os.ReadFile("testdata/metrics.txt")
	require.NoError(t, err)
	reason := ""
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		switch {
		case line == "":
			reason = ""
		case strings.HasPrefix(line, "#"):
			reason = line
		default:
			fields := strings.Fields(line)
			require.GreaterOrEqual(t, len(fields), 3, line)
			require.NotEmpty(t, reason, "%s: has no reason", line)
			require.Contains(t, []string{"missing", "extra", "type", "labels", "varies"}, fields[1], line)
			for _, pattern := range fields[2:] {
				list = append(list, &listedDifference{page: fields[0], kind: fields[1], pattern: pattern})
			}
		}
	}
	return list
}

// unlisted returns the differences that the list does not have, and the lines of the list that are none any more: the
// agent has what is missing, or kubelet what is extra. One that neither page has may follow later.
func unlisted(ours, kubelets map[string]family, list []*listedDifference) (problems []string) {
	diffs := metricsDifferences(ours, kubelets)
	for _, l := range list {
		l.used = l.kind == "varies" || l.kind == "missing" && !l.in(ours) || l.kind == "extra" && !l.in(kubelets)
	}
	for key, diff := range diffs {
		page, name, _ := strings.Cut(key, " ")
		listed := false
		for _, l := range list {
			if l.matches(page, name) && (l.kind == diff[0] || l.kind == "varies") {
				l.used, listed = true, true
			}
		}
		if !listed {
			problems = append(problems, fmt.Sprintf("%s %s %s: %s", page, diff[0], name, diff[1]))
		}
	}
	for _, l := range list {
		if !l.used {
			problems = append(problems, fmt.Sprintf("%s %s %s is listed, and is no difference", l.page, l.kind, l.pattern))
		}
	}
	slices.Sort(problems)
	return problems
}

// TestMetricsPages runs the same pods on a kubelet and on the agent, and compares the pages of metrics: the families,
// their types, and the names of the labels of their series. What differs is in testdata/metrics.txt with its reason.
func TestMetricsPages(t *testing.T) {
	t.Parallel()
	first := NewCluster(t)
	plane := NewControlPlane(t, first.Net)
	clusters := map[string]*Cluster{"ours": first, "kubelet": NewCluster(t)}
	agents := map[string]*Agent{}
	for name, c := range clusters {
		c.Preload(t, "pause:1", "busybox:1")
		c.MakeCgroup(t) // a kubelet does not start without it
		options := AgentOptions{NodeName: name, Kubeconfig: plane.NodeKubeconfig(t, name), Net: first.Net,
			Config: map[string]any{"cgroupsPerQOS": true, "enforceNodeAllocatable": []string{"pods"}}}
		if name == "kubelet" {
			options.Binary = KubeletBinary(t)
		}
		agents[name] = c.NewAgent(t, options)
		agents[name].Put(t, MakePod("static", Main(Sh("main", Forever))))
		agents[name].Start(t)
	}
	namespace := plane.Namespace(t, "metrics")
	for name := range agents {
		Eventually(t, within, "node "+name, func() error {
			node, err := plane.Client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			return nodeReady(node)
		})
		for _, pod := range metricsPods() {
			pod.Name, pod.Namespace, pod.Spec.NodeName = pod.Name+"-"+name, namespace, name
			_, err := plane.Client.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{})
			require.NoError(t, err)
		}
	}
	for name := range agents {
		plane.AwaitPod(t, namespace, "web-"+name, within, Running, Ready(true))
		plane.AwaitPod(t, namespace, "refused-"+name, within, Phase(v1.PodFailed))
		plane.AwaitPod(t, namespace, "crashes-"+name, within, Restarts("main", 1))
		_, err := plane.Client.CoreV1().Pods(namespace).Patch(t.Context(), "web-"+name, types.StrategicMergePatchType,
			[]byte(`{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"20m"}}}]}}`),
			metav1.PatchOptions{}, "resize")
		require.NoError(t, err)
	}
	list := readDifferences(t)
	var problems []string
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Second) {
		ours, err := metricsFamilies(agents["ours"])
		require.NoError(t, err)
		kubelets, err := metricsFamilies(agents["kubelet"])
		require.NoError(t, err)
		// What counts happens at its time.
		if problems = unlisted(ours, kubelets, list); len(problems) == 0 ||
			time.Now().After(deadline) {
			break
		}
	}
	for _, p := range problems {
		t.Error(p)
	}
	assert.Equal(t, featureStages(t, agents["kubelet"]), featureStages(t, agents["ours"]))
	if dir := os.Getenv("KUBELETKIT_E2E_METRICS"); dir != "" {
		for name, agent := range agents {
			for _, page := range metricsPages {
				body, err := agent.Get(page)
				require.NoError(t, err)
				require.NoError(t, os.WriteFile(dir+"/"+name+strings.ReplaceAll(page, "/", "-"), body, 0o600))
			}
		}
	}
}

// featureStages returns the stages of the features of kubernetes_feature_enabled.
func featureStages(t *testing.T, agent *Agent) map[string]string {
	t.Helper()
	body, err := agent.Get("/metrics")
	require.NoError(t, err)
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(string(body)))
	require.NoError(t, err)
	stages := map[string]string{}
	for _, m := range families["kubernetes_feature_enabled"].GetMetric() {
		labels := labelsOf(m)
		stages[labels["name"]] = labels["stage"]
	}
	return stages
}

// metricsPods are pods with what has metrics: probes, hooks, volumes, init containers, restarts, a refusal.
func metricsPods() []*v1.Pod {
	probe := &v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"true"}}}, PeriodSeconds: 1,
		TimeoutSeconds: 30}
	main := Sh("main", Forever)
	main.LivenessProbe, main.ReadinessProbe, main.StartupProbe = probe, probe, probe
	main.Resources = v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("10m")},
		Limits: v1.ResourceList{v1.ResourceCPU: resource.MustParse("100m"),
			v1.ResourceMemory: resource.MustParse("64Mi")}}
	web := MakePod("web", Init(Sh("init", "true")), Main(main), Mounted("tmp",
		v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}))
	crashes := MakePod("crashes", Main(Sh("main", "sleep 1; exit 1")))
	refused := MakePod("refused", Main(Sh("main", Forever)))
	refused.Spec.NodeSelector = map[string]string{"no": "node"}
	return []*v1.Pod{web, crashes, refused}
}
