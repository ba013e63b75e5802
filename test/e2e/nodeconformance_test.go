package e2e

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// conformanceSpecs are specs of NodeConformance that this agent once failed, by their names.
var conformanceSpecs = []string{
	"mirror pod: update activeDeadlineSeconds",
	"mirror pod: update container image",
	"mirror pod: update initContainer image",
	"should successfully recreate when file is removed and recreated",
	"should terminate sidecars simultaneously if prestop doesn't exit",
	"should print log to correct log path",
	"should accept recursive read-only mounts",
}

// nodeSpecs are specs of what a node defends itself with. They stop the agent, change its settings
// and start it again.
var nodeSpecs = []string{
	`Kubelet Cgroup Manager`,
	`PodPidsLimit`,
	`OOMKiller \[LinuxOnly\]`,
	`graceful node shutdown; baseline scenario`,
	`when gracefully shutting down should`,
	`RestartAllContainers should`,
	`kubelet restart during`,
	`user namespaces kubeconfig tests`,
	`should not emit ResizeCompleted event on initial creation`,
	`Downward API tests for pod level resources`,
	`AlwaysVerify IfNotPresent pod without PullSecret`,
	`NeverVerifyPreloadedImages IfNotPresent pod with the same credentials in a different secret`,
	`Device Plugin Failures: .*(lower allocatable|GetDevicePluginOptions fails|back to 1 if it got healthy)`,
	`can make a CDI device accessible`,
	`must retry Node(P|Unp)repareResources after Kubelet restart`,
	`Kubelet Pods API when .* should be able to list, get, and watch pods`,
}

// nodeTestsConfig are the settings of an agent that is the node of the node tests.
var nodeTestsConfig = map[string]any{
	"port": 10250, "readOnlyPort": 10255, "podLogsDir": "/var/log/pods", "healthzPort": 10248,
	"authentication": map[string]any{"anonymous": map[string]any{"enabled": true}, "webhook": map[string]any{"enabled": false}},
	"authorization":  map[string]any{"mode": "AlwaysAllow"},
}

// nodeTestsDirs are the directories of an agent that is the node of the node tests.
var nodeTestsDirs = []string{"/var/lib/kubelet", "/var/log/pods", "/var/log/containers"}

// The node tests of Kubernetes, of which these specs run, start no kubelet: this agent is the node.
func TestNodeConformance(t *testing.T) {
	t.Parallel()
	Need(t)
	// The root directory is not on a shared mount.
	c := NewClusterWith(t, ClusterOptions{OwnDirs: nodeTestsDirs, Propagation: "rprivate"})
	c.AddNodeIP(t)
	c.Preload(t, "pause:1")
	tests := c.StartNodeTests(t, NodeTestsOptions{Focus: conformanceSpecs})
	agent := c.NewAgent(t, AgentOptions{Kubeconfig: tests.Kubeconfig, Args: []string{"--root-dir", "/var/lib/kubelet"},
		Config: nodeTestsConfig})
	agent.Start(t)
	assertSpecs(t, tests.Run(t, 10*time.Minute), len(conformanceSpecs))
}

// Specs that change the settings of the agent, on this machine.
func TestNodeSpecs(t *testing.T) {
	t.Parallel()
	Need(t)
	testNodeSpecs(t, ClusterOptions{BuiltRunc: true}, nil, 30, nodeSpecs...)
}

// testNodeSpecs runs the specs, which may stop and start the agent. The cgroups of pods are below the
// root, where the specs look for them, and pods fail without their device plugin, as with kubelet.
// KUBELETKIT_E2E_SPECS has regular expressions, one a line, of other specs to run, KUBELETKIT_E2E_SPECS_SKIP of those of
// them that do not, and KUBELETKIT_E2E_SPECS_PROCS how many run at the same time. KUBELETKIT_E2E_SPECS_WITH is "kubelet"
// to run them on a kubelet in the place of the agent. KUBELETKIT_E2E_SPECS_LOG is a file for their output, and with .json
// behind its name for ginkgo's report.
func testNodeSpecs(t *testing.T, options ClusterOptions, config map[string]any, passing int, specs ...string) {
	t.Helper()
	if text := os.Getenv("KUBELETKIT_E2E_SPECS"); text != "" {
		specs, passing = strings.Split(text, "\n"), 0
	}
	skip := []string{"StandaloneMode"}
	if text := os.Getenv("KUBELETKIT_E2E_SPECS_SKIP"); text != "" {
		skip = append(skip, strings.Split(text, "\n")...)
	}
	procs := 1
	if text := os.Getenv("KUBELETKIT_E2E_SPECS_PROCS"); text != "" {
		var err error
		procs, err = strconv.Atoi(text)
		require.NoError(t, err, "KUBELETKIT_E2E_SPECS_PROCS")
	}
	const top = "/kubepods"
	if len(cgroupDirs(t, top)) == 0 { // else they are somebody else's
		t.Cleanup(func() {
			for _, dir := range cgroupDirs(t, top) {
				var dirs []string
				_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
					if err == nil && e.IsDir() {
						dirs = append(dirs, path)
					}
					return nil
				})
				for _, path := range slices.Backward(dirs) {
					_ = os.Remove(path)
				}
			}
		})
	}
	options.OwnDirs, options.Mirror = nodeTestsDirs, true
	c := NewClusterWith(t, options)
	c.AddNodeIP(t)
	c.Preload(t, "pause:1")
	var env []string
	if !options.SystemdCgroup { // the real system bus has systemd
		env = StartLogind(t).Env
	}
	tests := c.StartNodeTests(t, NodeTestsOptions{Focus: specs, Skip: skip, Env: env, Procs: procs})
	args := []string{"--root-dir", "/var/lib/kubelet"}
	var binary string
	switch with := os.Getenv("KUBELETKIT_E2E_SPECS_WITH"); with {
	case "kubelet":
		binary = KubeletBinary(t)
	case "":
		// Specs look for a process of this name.
		binary = filepath.Join(t.TempDir(), "kubelet")
		require.NoError(t, os.Symlink(MinikubeletBinary(t), binary))
		args = append(args, "--fail-without-device-plugin")
	default:
		t.Fatalf("KUBELETKIT_E2E_SPECS_WITH is %q, not kubelet", with)
	}
	settings := maps.Clone(nodeTestsConfig)
	for _, name := range []string{"cgroupsPerQOS", "enforceNodeAllocatable", "cgroupDriver", "makeIPTablesUtilChains",
		"localStorageCapacityIsolation"} {
		settings[name] = nil // the defaults, in place of those that the harness gives a kubelet
	}
	// The disk of this machine may be full. Specs of evictions set thresholds, and wait for the end of the pressure.
	settings["evictionHard"], settings["evictionPressureTransitionPeriod"] = map[string]string{
		"memory.available": "100Mi"}, "10s"
	settings["cgroupRoot"] = "/"
	maps.Copy(settings, config)
	agent := c.NewAgent(t, AgentOptions{
		Binary: binary, Kubeconfig: tests.Kubeconfig, Args: args, Config: settings, ConfigFile: tests.ConfigFile(),
		Env: env, KubeletDirs: true,
	})
	agent.Start(t)
	tests.Control(t, agent)
	limit := 15 * time.Minute
	if end, ok := t.Deadline(); ok {
		limit = time.Until(end) - time.Minute // for what follows
	}
	out := tests.Run(t, limit)
	if file := os.Getenv("KUBELETKIT_E2E_SPECS_LOG"); file != "" {
		require.NoError(t, os.WriteFile(file, []byte(out), 0o644))
		report, err := os.ReadFile(tests.ReportPath())
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(file+".json", report, 0o644))
	}
	assertSpecs(t, out, passing)
}

// assertSpecs asserts that none of the specs has failed, and that as many have passed. 0: any number.
func assertSpecs(t *testing.T, out string, passing int) {
	t.Helper()
	passed := " Passed | 0 Failed "
	if passing > 0 {
		passed = fmt.Sprintf(" %d%s", passing, passed)
	}
	var lines []string
	name, detail := "", 0 // lines that are still to be shown of a failure
	for line := range strings.Lines(out) {
		switch {
		case strings.HasPrefix(line, "[sig-"):
			name = line
		case strings.HasPrefix(line, "•"), strings.HasPrefix(line, "S [SKIPPED]"):
			lines = append(lines, strings.TrimSpace(line)+" "+name)
		case strings.Contains(line, "[FAILED]"), strings.Contains(line, " Passed | "):
			lines, detail = append(lines, line), 12
		case detail > 0:
			lines, detail = append(lines, line), detail-1
		}
	}
	assert.True(t, strings.Contains(out, passed), "want%s\n%s\n%s", passed, out[max(0, len(out)-6000):],
		strings.Join(lines, ""))
}
