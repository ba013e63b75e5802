package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/history"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/plan"
	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// told is the history of a pod, as the socket of the agent has it.
type told struct {
	agent  *Agent
	client http.Client
	pod    *v1.Pod
	// last is the number of the last entry of the steps before.
	last uint64
}

func newTold(t *testing.T, agent *Agent, pod *v1.Pod) *told {
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(agent.Root, "agent.sock"))
	}}
	t.Cleanup(transport.CloseIdleConnections)
	return &told{agent: agent, client: http.Client{Transport: transport}, pod: pod}
}

func (h *told) entries() (all []history.Entry, err error) {
	resp, err := h.client.Get("http://minikubelet/history/" + string(h.pod.UID))
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	for dec := json.NewDecoder(resp.Body); ; {
		var e history.Entry
		if err := dec.Decode(&e); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		all = append(all, e)
	}
}

// wanted is an entry that a test waits for. Empty fields are not compared.
type wanted struct {
	stage  runtime.RecordStage
	kind   runtime.RecordKind
	reason string
}

func (w wanted) is(e *history.Entry) bool {
	return e.Stage == w.stage && e.Kind == w.kind && (w.reason == "" || e.Reason == w.reason)
}

// expect waits until the new entries have each of the sequences in its order, with others in
// between. The entries are old for the next call.
func (h *told) expect(t *testing.T, step string, sequences ...[]wanted) {
	t.Helper()
	Eventually(t, within, "history of "+step, func() error {
		all, err := h.entries()
		if err != nil {
			return err
		}
		var news []history.Entry
		for _, e := range all {
			if e.Seq > h.last {
				news = append(news, e)
			}
		}
		for _, sequence := range sequences {
			rest := sequence
			for i := range news {
				if len(rest) > 0 && rest[0].is(&news[i]) {
					rest = rest[1:]
				}
			}
			if len(rest) > 0 {
				var lines strings.Builder
				for _, e := range news {
					fmt.Fprintf(&lines, "%s %s %s: %s\n", e.Stage, e.Kind, e.Reason, history.Sentence(e.Record))
				}
				return fmt.Errorf("no %+v in:\n%s", rest[0], &lines)
			}
		}
		h.last = all[len(all)-1].Seq
		return nil
	})
}

// The history of a pod has the observations, decisions and actions in their order, from the start
// of the pod to its end, and over restarts of the agent.
func TestHistory(t *testing.T) {
	const (
		seen, decided, done   = runtime.StageSeen, runtime.StageDecided, runtime.StageDone
		start, stop, pullKind = runtime.KindStartContainer, runtime.KindStopContainer, runtime.KindPullImage
	)
	s := newSuite(t, AgentOptions{})
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	touch := func(name string) { require.NoError(t, os.WriteFile(file(name), nil, 0o644)) }

	ctr := Sh("a", "rm -f /shared/sick; if [ -e /shared/crash ]; then exit 3; fi; touch /shared/steady; "+Forever)
	ctr.LivenessProbe = &v1.Probe{
		ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"/bin/sh", "-c",
			"! [ -e /shared/sick ]"}}},
		PeriodSeconds: 1, FailureThreshold: 1,
	}
	pod := MakePod("told", Main(ctr), Shared(dir))
	pod.UID = podUID(0)
	h := newTold(t, s.agent, pod)

	s.agent.Put(t, pod)
	s.agent.Await(t, pod, within, Running)
	Eventually(t, within, "the container's file", func() error { _, err := os.Stat(file("steady")); return err })
	h.expect(t, "the start",
		[]wanted{
			{decided, runtime.KindAdmit, ""}, {decided, runtime.KindCreateSandbox, plan.ReasonNew}, {done, runtime.KindCreateSandbox, ""},
			{seen, runtime.KindSandboxReady, ""}, {seen, runtime.KindContainerRunning, ""},
		},
		[]wanted{{decided, runtime.KindAdmit, ""}, {decided, start, plan.ReasonNew}, {done, start, ""}},
	)

	require.NoError(t, os.Remove(file("steady")))
	touch("crash")
	s.KillProcess(t, FullName(pod), "a")
	s.agent.Await(t, pod, within, Restarts("a", 3))
	require.NoError(t, os.Remove(file("crash")))
	Eventually(t, within, "a container that does not crash", func() error { // Running may be one that is about to
		_, err := os.Stat(file("steady"))
		return err
	})
	s.agent.Await(t, pod, within, Running)
	h.expect(t, "a crash loop", []wanted{
		{seen, runtime.KindContainerExited, ""}, {decided, start, plan.ReasonExited},
		{seen, runtime.KindContainerExited, ""}, {decided, runtime.KindBackOff, "CrashLoopBackOff"}, {decided, start, plan.ReasonExited},
		{seen, runtime.KindContainerRunning, ""},
	})

	restarts := Status(s.agent.Await(t, pod, within, Running), "a").RestartCount
	touch("sick")
	s.agent.Await(t, pod, within, Restarts("a", restarts+1), Running)
	h.expect(t, "a probe that fails",
		[]wanted{{decided, runtime.KindProbe, "Liveness"}, {decided, stop, plan.ReasonLivenessProbe}, {done, stop, ""},
			{done, start, ""}},
		[]wanted{{decided, stop, plan.ReasonLivenessProbe}, {seen, runtime.KindContainerExited, ""},
			{seen, runtime.KindContainerRunning, ""}},
	)

	pod.Spec.Containers[0].Image = s.Registry.Image("busybox:2") // which is not on the node
	s.agent.Put(t, pod)
	s.agent.Await(t, pod, within, Restarts("a", restarts+2), Running)
	h.expect(t, "a change of the image",
		[]wanted{{decided, runtime.KindUpdate, ""}, {decided, stop, plan.ReasonChanged}, {done, stop, ""},
			{done, start, ""}},
		[]wanted{{decided, runtime.KindUpdate, ""}, {decided, pullKind, runtime.ReasonImageAbsent},
			{done, pullKind, ""}, {done, start, ""}},
	)

	wrong := pod.DeepCopy()
	wrong.Spec.Containers[0].Ports = []v1.ContainerPort{{ContainerPort: 70000}}
	s.agent.Put(t, wrong)
	h.expect(t, "a manifest that is not valid", []wanted{{decided, runtime.KindReject, ""}})
	s.agent.Put(t, pod)

	restart := func() {
		s.agent.Stop(t)
		s.agent.Start(t)
		s.agent.WaitHealthy(t)
		h.last = 0 // numbers are those of one agent
	}
	restart()
	s.agent.Await(t, pod, within, Running)
	s.agent.Remove(t, pod)
	s.agent.AwaitGone(t, within, pod)
	end := []wanted{
		{seen, runtime.KindAgentStarted, ""}, {decided, runtime.KindWithdraw, ""}, {decided, runtime.KindStopPod, ""}, {done, stop, ""},
		{done, runtime.KindStopPod, ""}, {done, runtime.KindRemovePod, ""}, {done, runtime.KindRemoveCgroup, ""},
	}
	h.expect(t, "the end", end)
	restart()
	h.expect(t, "the end, after a restart", end)

	// The commands print each entry.
	entries, err := h.entries()
	require.NoError(t, err)
	command := func(args ...string) string {
		out, err := exec.Command(MinikubeletBinary(t), append(args, "--root-dir", s.agent.Root)...).CombinedOutput()
		require.NoError(t, err, "%s", out)
		return string(out)
	}
	table := command("history", FullName(pod))
	t.Logf("\n%s", table)
	_, rows, found := strings.Cut(table, "\nTIME ") // below the newest problem
	require.True(t, found)
	lines := strings.Split(strings.TrimSpace(rows), "\n")[1:]
	require.Len(t, lines, len(entries))
	slices.Reverse(lines) // the newest entry is the first
	described := command("describe", FullName(pod))
	for i, e := range entries {
		sentence := strings.Join(strings.Fields(history.Sentence(e.Record)), " ")
		assert.Contains(t, lines[i], sentence)
		if i >= len(entries)-10 {
			assert.Contains(t, described, sentence)
		}
	}

	// A pod that has never run has a name.
	wrong.Name, wrong.UID = "wrong", podUID(1)
	s.agent.Put(t, wrong)
	h.pod = wrong
	h.last = 0
	h.expect(t, "a pod that is not valid", []wanted{{decided, runtime.KindReject, ""}})
	assert.Contains(t, command("describe", FullName(wrong)), "spec.containers[0].ports[0].containerPort")
}
