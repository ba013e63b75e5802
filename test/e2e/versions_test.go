package e2e

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// askReference decodes what a program of test/tools/kubelet/reference prints in the directory.
func askReference(t *testing.T, into any, program, dir string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), KubernetesBinary(t, program), args...)
	cmd.Dir = dir
	out, err := cmd.Output()
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(out, into))
}

// Each version of kubelet restores the states that the agent writes, which are those of kubelet 1.36, and those of the
// other version, and writes those of which the tests of the managers show that the agent reads them.
func TestCheckpointsOfKubelets(t *testing.T) {
	t.Parallel()
	read := func(version string) map[string]string {
		out := map[string]string{}
		for file, path := range map[string]string{
			"cpu_manager_state":           "placement/cpus/testdata/kubelet" + version + ".json",
			"memory_manager_state":        "placement/memory/internal/state/testdata/kubelet" + version + ".json",
			"kubelet_internal_checkpoint": "devices/internal/checkpoint/testdata/kubelet_internal_checkpoint",
			"dra_manager_state":           "dra/testdata/dra_manager_state",
		} {
			data, err := os.ReadFile(filepath.Join("../../node", path))
			require.NoError(t, err)
			out[file] = string(data)
		}
		return out
	}
	states := map[string]map[string]string{"reference-1.36": read(""), "reference": read("-1.37")}
	for program, want := range states {
		for writer, files := range states {
			dir := t.TempDir()
			for name, content := range files {
				require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
			}
			var got map[string]string
			askReference(t, &got, program, dir, "checkpoints", dir)
			assert.Equal(t, want, got, "%s reads what %s writes", program, writer)
		}
	}

	// Pods with resources as a whole have a feature gate.
	want, dir := map[string]string{}, t.TempDir()
	for name, path := range map[string]string{
		"cpu_manager_state":    "placement/cpus/testdata/pods-1.37.json",
		"memory_manager_state": "placement/memory/internal/state/testdata/pods-1.37.json",
	} {
		data, err := os.ReadFile(filepath.Join("../../node", path))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
		want[name] = string(data)
	}
	var got map[string]string
	askReference(t, &got, "reference", dir, "checkpoints", dir, "PodLevelResourceManagers=true")
	assert.Equal(t, want, got)
}

var updateUIDs = flag.Bool("update-uids", false, "write testdata/uids.txt of podconfig/manifest")

// The UIDs of static pods and the hashes of containers in testdata/uids.txt of podconfig/manifest are those of kubelet's
// own code, of 1.36, 1.37 and the version of [OldKubernetes]. The lines of other versions stay as they are.
func TestStaticPodUIDs(t *testing.T) {
	t.Parallel()
	const dir = "../../podconfig/manifest/testdata"
	programs := map[string]string{"1.36": "reference-1.36", "1.37": "reference"}
	if version := OldKubernetes(); version != "" && programs[version] == "" {
		programs[version] = "reference-" + version
	}
	golden, err := os.ReadFile(filepath.Join(dir, "uids.txt"))
	require.NoError(t, err)
	var want []string
	for line := range strings.Lines(string(golden)) {
		if version, _, _ := strings.Cut(line, " "); programs[version] == "" {
			want = append(want, line)
		}
	}
	for version, program := range programs {
		want = append(want, uidsOfKubelet(t, version, program, dir)...)
	}
	slices.Sort(want)
	if text := strings.Join(want, ""); *updateUIDs {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "uids.txt"), []byte(text), 0o644))
	} else {
		assert.Equal(t, text, string(golden))
	}
}

// uidsOfKubelet returns the lines of testdata/uids.txt for a version of kubelet.
func uidsOfKubelet(t *testing.T, version, program, dir string) (lines []string) {
	kubelets := map[string]struct {
		UID    types.UID
		Hashes map[string]uint64
	}{}
	askReference(t, &kubelets, program, dir, "uids", "node-1", "uids")
	files, err := filepath.Glob(filepath.Join(dir, "uids/*"))
	require.NoError(t, err)
	require.Len(t, kubelets, len(files))
	for _, path := range files {
		file := filepath.Base(path)
		pod, ok := kubelets[strings.TrimSuffix(file, filepath.Ext(file))+"-node-1"]
		require.True(t, ok, "the pod in %s has another name", path)
		line := fmt.Sprintf("%s uids/%s %s", version, file, pod.UID)
		for _, name := range slices.Sorted(maps.Keys(pod.Hashes)) {
			line += fmt.Sprintf(" %s=%x", name, pod.Hashes[name])
		}
		lines = append(lines, line+"\n")
	}
	return lines
}

// The table of feature gates has those that kubelet accepts, with their defaults. Those of which it says that a kubelet
// does nothing with them do not occur in the code of a kubelet.
func TestFeatureGatesAreKubelets(t *testing.T) {
	t.Parallel()
	type gate struct{ Default, Locked bool }
	kubelets, here := map[string]gate{}, map[string]gate{}
	askReference(t, &kubelets, "reference", ".", "gates")
	inKubelet := gatesInKubelet(t)
	table, err := os.ReadFile("../../kubelet/internal/config/feature_gates.txt")
	require.NoError(t, err)
	for line := range strings.Lines(string(table)) {
		fields := strings.Fields(line)
		if fields[0] == "#" {
			continue
		}
		here[fields[0]] = gate{fields[1] == "true", fields[2] == "locked" || fields[2] == "absent"}
		// kubelet 1.37 has no options of the topology manager that are alpha or beta.
		if fields[2] == "other" && !strings.HasPrefix(fields[0], "TopologyManagerPolicy") {
			assert.NotContains(t, inKubelet, fields[0])
		}
	}
	assert.Equal(t, kubelets, here)
}

// gatesInKubelet returns the names of the feature gates to which the packages of a kubelet refer.
func gatesInKubelet(t *testing.T) map[string]bool {
	cmd := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.Dir}}", "k8s.io/kubernetes/cmd/kubelet/...",
		"k8s.io/kubernetes/pkg/kubelet/...", "k8s.io/kubernetes/pkg/volume/...", "k8s.io/kubernetes/pkg/probe/...",
		"k8s.io/kubernetes/pkg/credentialprovider/...", "k8s.io/kubernetes/pkg/security/...")
	cmd.Dir = "../tools/kubelet"
	out, err := cmd.Output()
	require.NoError(t, err)
	found, reference := map[string]bool{}, regexp.MustCompile(`eatures\.([A-Z]\w+)`)
	for _, dir := range strings.Fields(string(out)) {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		require.NoError(t, err)
		for _, path := range files {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			source, err := os.ReadFile(path)
			require.NoError(t, err)
			for _, m := range reference.FindAllStringSubmatch(string(source), -1) {
				found[m[1]] = true
			}
		}
	}
	return found
}
