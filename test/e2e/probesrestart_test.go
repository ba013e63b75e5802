package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// A container that has started, and is ready, stays so when the agent is killed and no API server has its status,
// although its startup probe would fail now.
func TestProbeResultsOutliveAKill(t *testing.T) {
	t.Parallel()
	s := newSuite(t, AgentOptions{})
	testProbeResultsOutliveAKill(t, s.agent, "/shared")
}

func TestProcessProbeResultsOutliveAKill(t *testing.T) {
	t.Parallel()
	testProbeResultsOutliveAKill(t, StartProcessAgent(t, AgentOptions{}), "")
}

// testProbeResultsOutliveAKill has a directory that the containers see at the path; "" if they see it at its own.
func testProbeResultsOutliveAKill(t *testing.T, a *Agent, path string) {
	dir, options := t.TempDir(), []Option(nil)
	if path == "" {
		path = dir
	}
	probe := func(file string, period, failures int32) *v1.Probe {
		return &v1.Probe{
			ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"sh", "-c",
				"test -e " + path + "/" + file}}},
			PeriodSeconds: period, FailureThreshold: failures, TimeoutSeconds: 30,
		}
	}
	main, side := Sh("main", Forever), Sh("side", Forever)
	main.StartupProbe, main.ReadinessProbe = probe("started", 1, 2), probe("ready", 3600, 1)
	side.StartupProbe = probe("started", 1, 2)
	options = append(options, Sidecar(side), Main(main))
	if path != dir {
		options = append(options, Shared(dir))
	}
	for _, file := range []string{"started", "ready"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), nil, 0o600))
	}
	pod := MakePod("probed", options...)
	a.Put(t, pod)
	before := a.Await(t, pod, within, Running, Ready(true))
	// The results are written after the status has changed: a kill before that loses them.
	Eventually(t, within, "the results of the probes are on disk", func() error {
		record, err := os.ReadFile(filepath.Join(a.Root, "podcheckpoint", "state", "probes.checkpoint"))
		if err == nil && (strings.Count(string(record), `"started":true`) < 2 ||
			!strings.Contains(string(record), `"ready":true`)) {
			err = fmt.Errorf("they are %s", record)
		}
		return err
	})
	for _, file := range []string{"started", "ready"} {
		require.NoError(t, os.Remove(filepath.Join(dir, file)))
	}
	for range 2 {
		a.Kill(t)
		a.Start(t)
		a.WaitHealthy(t)
		for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			now, err := a.Pod(pod)
			if err != nil || len(now.Status.ContainerStatuses) == 0 {
				continue // it is not synced yet
			}
			require.NoError(t, Ready(true)(now))
			for _, c := range append(now.Status.InitContainerStatuses, now.Status.ContainerStatuses...) {
				require.True(t, c.Ready && *c.Started, fmt.Sprintf("%+v", c))
			}
		}
		adopted(t, before, a.Await(t, pod, within, Running, Ready(true)))
	}
	assert.EqualValues(t, 0, Status(before, "side").RestartCount)
}
