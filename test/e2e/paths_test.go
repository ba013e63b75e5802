package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// pathsInDocs returns the table of docs/operate/swap.md: the first path of each row by what it is.
func pathsInDocs(t *testing.T) map[string]string {
	t.Helper()
	doc, err := os.ReadFile("../../docs/operate/swap.md")
	require.NoError(t, err)
	_, table, _ := strings.Cut(string(doc), "\n## Paths\n")
	table, _, _ = strings.Cut(table, "\n## ")
	rows := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| ([^|`]+) \\| (?:`([^`]+)`|none)").FindAllStringSubmatch(table,
		-1) {
		for name := range strings.SplitSeq(row[1], ", ") {
			rows[name] = row[2]
		}
	}
	return rows
}

// The paths of a kubelet with a root directory that is not the usual one are those of the docs, and this agent has what
// it has at the same paths.
func TestPaths(t *testing.T) {
	t.Parallel()
	Need(t)
	out, err := exec.CommandContext(t.Context(), KubernetesBinary(t, "reference"), "paths", "<root>").Output()
	require.NoError(t, err)
	var kubelets map[string]string
	require.NoError(t, json.Unmarshal(out, &kubelets))
	assert.Equal(t, kubelets, pathsInDocs(t))

	ca, _, _ := ClientFiles(t, "admin", "system:masters")
	has := map[string]map[string]bool{}
	for _, binary := range []string{KubeletBinary(t), ""} {
		c := NewClusterWith(t, ClusterOptions{OwnDirs: []string{"/var/lib/kubelet", "/var/log/pods",
			"/var/log/containers"}})
		c.Preload(t, "pause:1", "busybox:1")
		agent := c.NewAgent(t, AgentOptions{Binary: binary, KubeletDirs: true,
			Config: map[string]any{"podLogsDir": nil, "enableServer": true, "port": 10250,
				"authentication": map[string]any{"x509": map[string]string{"clientCAFile": ca},
					"webhook": map[string]any{"enabled": false}, "anonymous": map[string]any{"enabled": false}}}})
		s := &suite{Cluster: c, agent: agent}
		require.NoError(t, os.MkdirAll(c.Own(devicePlugins), 0o750))
		agent.Start(t)
		agent.WaitHealthy(t)
		startNullPlugin(t, c.Own(devicePlugins), "a")
		Eventually(t, within, "the plugin is registered", func() error { // a kubelet fails pods that come before it
			_, err := os.Stat(c.Own(filepath.Join(devicePlugins, "kubelet_internal_checkpoint")))
			return err
		})
		pod := MakePod("paths", Main(Sh("main", Forever)), withNulls(1))
		pod.UID = podUID(0)
		s.put(t, pod)
		agent.Await(t, pod, within, Running)
		found := map[string]bool{}
		for name, path := range kubelets {
			below, ok := strings.CutPrefix(path, "<root>")
			if path = c.Own(path); ok {
				path = agent.Root + below
			}
			_, err := os.Stat(path)
			found[name] = err == nil
		}
		for _, file := range []string{"cpu_manager_state", "memory_manager_state", "device-plugins", "pki"} {
			_, err := os.Stat(filepath.Join(agent.Root, file))
			found[file+" below the root directory"] = err == nil
		}
		for _, file := range []string{"kubelet.sock", "kubelet_internal_checkpoint"} {
			_, err := os.Lstat(filepath.Join(c.Own(devicePlugins), file))
			found[file] = err == nil
		}
		has[filepath.Base(binary)] = found
	}
	ours := has["."]
	delete(has, ".")
	for name, kubelet := range has["kubelet"] {
		switch name {
		case "data of volume plugins", "pods API", // only a kubelet has them
			// made with the first one here
			"checkpoints of containers",
			// policy none
			"cpu_manager_state below the root directory", "memory_manager_state below the root directory":
		default:
			assert.Equal(t, kubelet, ours[name], name)
		}
	}
	assert.True(t, ours["device plugins"] && ours["certificates"] && ours["logs of pods"] && ours["links to logs"] &&
		ours["kubelet_internal_checkpoint"], "%v", ours)
}
