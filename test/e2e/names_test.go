package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// kubeletNames are the packages whose names a kubelet writes, and those of which it has them: the reasons of the
// scheduler, of a container runtime and of API servers.
var kubeletNames = strings.Fields(`k8s.io/kubernetes/cmd/kubelet/... k8s.io/kubernetes/pkg/kubelet/...
	k8s.io/kubernetes/pkg/credentialprovider/... k8s.io/kubernetes/pkg/volume/... k8s.io/api/core/v1
	k8s.io/kubernetes/pkg/scheduler/framework/plugins/names k8s.io/cri-api/pkg/errors k8s.io/component-base/metrics/...
	k8s.io/apimachinery/pkg/apis/meta/v1 k8s.io/apimachinery/pkg/util/remotecommand k8s.io/kubectl/pkg/...
	k8s.io/apiserver/pkg/authentication/user`)

// onlyHere are the names that no kubelet writes, each with its reason. Reasons of the history of a pod are not among
// them, see historyReasons.
var onlyHere = map[string]map[string]string{
	"event": {
		"EvictionCompleted":     "what an eviction has freed",
		"FailedPrepareDevices":  "kubelet refuses the pod instead",
		"ManifestWarning":       "a kubelet ignores the fields without a word",
		"OOMKilling":            "of the pod; kubelet has only SystemOOM, of the node",
		"RecreatingPod":         "an update in place; a kubelet ignores it",
		"TooManyContainers":     "a bound that a kubelet does not have",
		"UpdateNotApplied":      "an update in place; a kubelet ignores it",
		"WaitingForPredecessor": "a kubelet says nothing",
		"WaitingForStep":        "a kubelet says nothing",
	},
	"reason": {
		"HostNetwork":                "of the network of the embedded runtime",
		"HostProcesses":              "of a condition of the embedded runtime",
		"InvalidDNSPolicy":           "a kubelet logs it",
		"InvalidUID":                 "a kubelet makes a directory of any UID",
		"NoAgent":                    "of the command line while no agent runs",
		"OOMKilled":                  "of the container runtime",
		"UserNamespacesForbidden":    "a kubelet leaves it to the API server",
		"UserNamespacesNotSupported": "a kubelet tries again and again",
		"WaitingForDevices":          "kubelet refuses the pod instead",
		"WaitingForPreemption":       "a kubelet does nothing else meanwhile",
	},
	"key": {
		"kubernetes.io/persistent-claim": "the name of a volume plugin that does not mount",
		"pv.kubernetes.io/migrated-to":   "of the controllers, which is read",
	},
	"metric": {},
}

// historyReasons are the files whose reasons are those of a history, which a kubelet does not have.
var historyReasons = regexp.MustCompile(`^(runtime|podworkers)/record\.go$|^runtime/plan/|/local/restart\.go$`)

// notWritten are packages for tests and examples.
var notWritten = regexp.MustCompile(`^(examples|internal/apitest|agenttest)/|/(fake|runtimetest|podworkerstest)/`)

// names are the places of names, by their kinds and the names.
type names map[string]map[string]string

// writtenNames returns the names in packages.
func writtenNames(t *testing.T, dir string, patterns ...string) names {
	t.Helper()
	cmd := exec.Command(harness.KubernetesBinary(t, "reference"), append([]string{"names", dir}, patterns...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err)
	var found names
	require.NoError(t, json.Unmarshal(out, &found))
	return found
}

// The names that the agent writes for users are kubelet's, and those of kubelet that it does not write are listed.
func TestNames(t *testing.T) {
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	kubelet := writtenNames(t, filepath.Join(root, "test/tools/kubelet"), kubeletNames...)
	ours := writtenNames(t, root, "./...")
	t.Run("AreKubelets", func(t *testing.T) { testNamesAreKubelets(t, root, kubelet, ours) })
	t.Run("OfKubeletAreListed", func(t *testing.T) { testNamesOfKubeletAreListed(t, root, kubelet, ours) })
}

// Each reason of an event, a status or a condition, type of a condition, label, annotation, taint, finalizer and metric
// is one of kubelet's, by the values of its constants, or only here on purpose.
func testNamesAreKubelets(t *testing.T, root string, kubelet, ours names) {
	for _, kind := range []string{"event", "reason", "condition", "key", "metric"} {
		require.NotEmpty(t, kubelet[kind], kind)
		require.NotEmpty(t, ours[kind], kind)
		used := map[string]bool{}
		for name, place := range ours[kind] {
			place, _ = filepath.Rel(root, place)
			file, _, _ := strings.Cut(place, ":")
			_, known := kubelet[kind][name]
			for _, events := range []map[string]string{kubelet["event"], ours["event"]} {
				if _, isEvent := events[name]; kind == "reason" && isEvent {
					known = true // the constant of an event, or the argument of a function that emits one
				}
			}
			switch {
			case known, name == "", notWritten.MatchString(file):
			case kind == "reason" && historyReasons.MatchString(file):
			case kind == "metric" && strings.HasPrefix(name, "kubeletkit_"):
			case onlyHere[kind][name] != "":
				used[name] = true
			default:
				t.Errorf("%s: the %s %q is not kubelet's", place, kind, name)
			}
		}
		for name := range onlyHere[kind] {
			assert.True(t, used[name], "the %s %q is only here, but is not used, or is kubelet's", kind, name)
		}
	}
}

// The golden file has the metrics of kubelet's page /metrics, and docs/operate/features.md the events that are missing.
func testNamesOfKubeletAreListed(t *testing.T, root string, kubelet, ours names) {
	golden, err := os.ReadFile(filepath.Join(root, "kubelet/testdata/kubelet-metrics.txt"))
	require.NoError(t, err)
	listed := map[string]bool{}
	for line := range strings.Lines(string(golden)) {
		if !strings.HasPrefix(line, "#") {
			listed[strings.TrimSpace(line)] = true
		}
	}
	page := regexp.MustCompile(`/k8s\.io/kubernetes@[^/]*/(cmd/kubelet|pkg/kubelet|pkg/credentialprovider|pkg/volume)/`)
	for name, place := range kubelet["metric"] {
		if page.MatchString(place) && !strings.HasSuffix(strings.Split(place, ":")[0], "resource_metrics.go") {
			assert.True(t, listed[name], "%s: the metric %s is not in the golden file", place, name)
		}
	}
	for name := range listed {
		assert.NotEmpty(t, kubelet["metric"][name], "%s is no metric of kubelet", name)
	}

	features, err := os.ReadFile(filepath.Join(root, "docs/operate/features.md"))
	require.NoError(t, err)
	_, missing, found := strings.Cut(string(features), "Missing: these events of kubelet: ")
	require.True(t, found)
	missing, _, _ = strings.Cut(missing, "\n")
	absent := regexp.MustCompile(`\w+`).FindAllString(missing, -1)
	words := ours["word"]
	for _, reason := range []string{"Deferred", "Infeasible"} { // "Resize" and the reason of a condition
		require.NotEmpty(t, words[reason])
		words["Resize"+reason] = words[reason]
	}
	for name, place := range kubelet["event"] {
		assert.Equal(t, words[name] == "", slices.Contains(absent, name), "%s: the event %s", place, name)
	}
}
