package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/kubelet/internal/control"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/terminal"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// statusWithin is how long an agent may take to answer before the command status says that it does not.
const statusWithin = 10 * time.Second

// The exit codes of status. They are those of systemctl.
const (
	statusWrong      ExitCode = 1
	statusNotRunning ExitCode = 3
	statusUnknown             = 4
)

// statusCommand is the command status.
func statusCommand(e Env) *cobra.Command {
	return e.command(&cobra.Command{
		Use: "status", Short: "show whether the agent runs, and what is wrong", GroupID: GroupNode,
		Long: "It has the agent, its node and container runtime, what the node is short of, the sources of pods, the " +
			"pods that are not ready, and the manifests that cannot be used.\n\n" +
			"The exit code is 0 if the agent runs and nothing is wrong, 1 if something is, 3 if the agent does not run, " +
			"and 4 if that is not known, as when its socket belongs to another user.",
		Example: "  minikubelet status\n  minikubelet status -o json | jq .problems",
	}, (*call).status, (*call).outputFlag, (*call).endpointFlag)
}

// agentState is what status prints in JSON.
type agentState struct {
	Running bool `json:"running"`
	*control.Status
	Pods *podCount `json:"pods,omitempty"`
	// Waiting are the pods that are not ready.
	Waiting   []waitingPod      `json:"waiting,omitempty"`
	Manifests []control.Problem `json:"manifests,omitempty"`
	// Problems are sentences about all that is wrong. The exit code is 0 if there are none.
	Problems []string `json:"problems"`
	// Left says what goes on running without an agent.
	Left string `json:"left,omitempty"`
}

type podCount struct {
	Total int `json:"total"`
	Ready int `json:"ready"` // or succeeded
}

// waitingPod is a pod that is not ready, and why.
type waitingPod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Why       string `json:"why"`
}

// status prints the state of the agent.
func (c *call) status(ctx context.Context) error {
	if err := c.noArgs(); err != nil {
		return err
	}
	if c.output != asTable && !c.output.structured() {
		return c.misused(fmt.Sprintf("--output %s: want json or yaml", c.output))
	}
	asked, cancel := context.WithTimeoutCause(ctx, statusWithin,
		fmt.Errorf("it has not answered within %s", statusWithin))
	defer cancel()
	s, err := c.agentState(asked)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, fs.ErrPermission):
		return &Failure{Code: statusUnknown, Err: err}
	case errors.Is(err, control.ErrNoAgent) && asked.Err() == nil:
		s.Problems = []string{"the agent does not run: " + err.Error()}
		if c.Left != nil {
			if _, text, err := c.Left(ctx, c.rootDir, c.endpoint); err == nil {
				s.Left = text
			}
		}
	case err != nil:
		s.Running = true
		s.Problems = []string{"the agent does not answer: " + cmp.Or(context.Cause(asked), err).Error()}
	}
	if c.output.structured() {
		err = PrintValue(c.Out, string(c.output), s)
	} else {
		_, err = fmt.Fprint(c.Out, s.text(c.client.now(), c.lineWidth()))
	}
	switch {
	case err != nil:
		return err
	case !s.Running:
		return statusNotRunning
	case len(s.Problems) > 0:
		return statusWrong
	}
	return nil
}

// agentState returns the state of the agent with all that is wrong.
func (c *call) agentState(ctx context.Context) (s agentState, err error) {
	st, err := get[control.Status](ctx, c.client, control.StatusPath, nil, "states")
	if err != nil {
		return s, err
	}
	pods, err := c.client.pods(ctx)
	if err != nil {
		return s, err
	}
	problems, err := get[[]control.Problem](ctx, c.client, control.ProblemsPath, nil, "manifests that cannot be used")
	if err != nil {
		return s, err
	}
	s = agentState{Running: true, Status: &st, Pods: &podCount{Total: len(pods)}, Problems: []string{}}
	s.Manifests, _ = control.ByUse(problems)
	add := func(format string, args ...any) { s.Problems = append(s.Problems, fmt.Sprintf(format, args...)) }
	if st.Unhealthy != "" {
		add("the agent is not healthy: %s", st.Unhealthy)
	}
	if st.NotReady != "" {
		add("the node is not ready: %s", st.NotReady)
	}
	for _, condition := range st.Pressure {
		add("the node has %s", condition)
	}
	for _, source := range st.Sources {
		if !source.Delivered {
			add("source %s has not delivered its pods", source.Name)
		}
	}
	s.Waiting = c.waiting(ctx, terminal.SortPods(pods))
	s.Pods.Ready = len(pods) - len(s.Waiting)
	for _, w := range s.Waiting {
		add("pod %s/%s: %s", w.Namespace, w.Name, w.Why)
	}
	for _, m := range s.Manifests {
		add("manifest %s cannot be used: %s", m.Path, m.Error)
	}
	return s, nil
}

// mostInQuery is the number of pods whose events are requested by their UIDs, and not with those of all pods.
const mostInQuery = 50

// waiting returns why the pods are not ready that are not.
func (c *call) waiting(ctx context.Context, pods []*v1.Pod) (out []waitingPod) {
	pods = slices.DeleteFunc(slices.Clone(pods), isFine)
	if len(pods) == 0 {
		return nil
	}
	var uids []types.UID
	for _, pod := range pods {
		uids = append(uids, pod.UID)
	}
	if len(uids) > mostInQuery {
		uids = nil
	}
	of := map[types.UID][]runtime.Event{}
	all, _ := c.client.events(ctx, uids...) // without them less is known
	for _, e := range all {
		of[e.Pod.UID] = append(of[e.Pod.UID], e)
	}
	for _, pod := range pods {
		why := terminal.Why(pod, of[pod.UID], nil, c.client.now())
		out = append(out, waitingPod{pod.Namespace, pod.Name, why})
	}
	return out
}

// isFine reports whether the pod has succeeded, or all of its containers are ready.
func isFine(pod *v1.Pod) bool {
	if pod.Status.Phase == v1.PodSucceeded {
		return true
	}
	s := terminal.Summarize(pod)
	return s.Status == "Running" && s.Ready == s.Total
}

// text returns the state for people.
func (s *agentState) text(now time.Time, width int) string {
	d := newDescription(now, width)
	if s.Status == nil {
		d.headline(strings.ToUpper(s.Problems[0][:1]) + s.Problems[0][1:])
		if s.Left != "" {
			d.headline(s.Left)
		}
		return strings.TrimSuffix(d.page(), "\n")
	}
	but := func(text, problem, wrong string) string {
		if problem == "" {
			return text
		}
		return wrong + ": " + terminal.OneLine(problem)
	}
	d.line(0, "Agent", "%s, PID %d, %s", but("runs", s.Unhealthy, "runs, but is not healthy"), s.PID, s.Version)
	d.line(0, "Node", "%s, %s", s.NodeName, but("ready", s.NotReady, "not ready"))
	d.line(0, "Runtime", "%s", cmp.Or(s.Runtime, "not known yet"))
	pressure := strings.Fields(strings.Trim(fmt.Sprint(s.Pressure), "[]"))
	d.line(0, "Pressure", "%s", cmp.Or(strings.Join(pressure, ", "), "none"))
	var sources []string
	for _, source := range s.Sources {
		text := fmt.Sprintf("%s (%d pods", source.Name, source.Pods)
		if source.Rejected > 0 {
			text += fmt.Sprintf(", %d rejected", source.Rejected)
		}
		if !source.Delivered {
			text = source.Name + " (has not delivered its pods"
		}
		sources = append(sources, text+")")
	}
	d.line(0, "Sources", "%s", cmp.Or(strings.Join(sources, ", "), "none"))
	d.line(0, "Pods", "%d of %d are ready", s.Pods.Ready, s.Pods.Total)
	for _, w := range s.Waiting {
		d.line(0, "Waits", "%s/%s: %s", w.Namespace, w.Name, w.Why)
	}
	for _, m := range s.Manifests {
		d.line(0, "Manifest", "%s cannot be used: %s", m.Path, terminal.OneLine(m.Error))
	}
	return d.page()
}
