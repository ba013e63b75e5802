package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/kubeletkit/kubeletkit/history"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/control"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/recent"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/terminal"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// problems prints the manifests that cannot be used, of which no pod can be listed, and those of which something is
// ignored.
func (c *call) problems(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, completeWithin) // the disk may be slow
	defer cancel()
	all, err := get[[]control.Problem](ctx, c.client, control.ProblemsPath, nil, "manifests that cannot be used")
	if err != nil || len(all) == 0 { // the agent may be older
		return
	}
	broken, used := control.ByUse(all)
	c.problemLines("Manifests that cannot be used:", broken)
	c.problemLines("Manifests of which something is ignored:", used)
}

func (c *call) problemLines(heading string, all []control.Problem) {
	var lines []string
	for _, problem := range all {
		lines = append(lines, problem.Path+": "+terminal.OneLine(problem.Error))
	}
	c.below(heading, lines, "validate names all of a directory")
}

// below prints the first lines below a table. rest is the command that has all, and what it does.
func (c *call) below(heading string, lines []string, rest string) {
	const most = 5
	if len(lines) == 0 {
		return
	}
	fmt.Fprintln(c.Err, "\n"+heading)
	for _, line := range lines[:min(most, len(lines))] {
		text := wrapped(terminal.Escape(line), max(0, c.lineWidth()-4))
		fmt.Fprintf(c.Err, "  %s\n", strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n    "))
	}
	if more := len(lines) - most; more > 0 {
		fmt.Fprintf(c.Err, "  and %d more; %s %s\n", more, c.Program, rest)
	}
}

// qualifiedName returns a name of the pod that all commands accept.
func qualifiedName(namespace, name string) string {
	return terminal.Escape(namespace) + "/" + terminal.Escape(name)
}

// describeCommand is the command describe.
func describeCommand(e Env) *cobra.Command {
	return e.command(&cobra.Command{
		Use: "describe POD", Short: "show the state of a pod and its latest events, or the node", GroupID: groupPods,
		Long: "A pod that is gone from the node can be described until 100 others are gone after it. " +
			"describe node shows the node, and describe pod node a pod of that name.",
		Example: "  minikubelet describe web\n  minikubelet describe node",
	}, (*call).describe, (*call).namespaceFlag, (*call).leftFlag)
}

// known is what is known of a pod.
type known struct {
	name string
	// pod is nil if only its history, or only a manifest that cannot be used, is known.
	pod *v1.Pod
	// gone is set if the pod is gone from the node.
	gone *recent.Gone
	// old is set if only the history is known.
	old    *history.Pod
	held   []control.Holding // of all pods
	broken []control.Problem // manifests that may be its own
	events []runtime.Event   // the oldest first
	past   []history.Entry   // the oldest first
}

// known returns what is known of the pod of that name. The error wraps errNoPod if that is nothing.
func (c *call) known(ctx context.Context, name string) (k known, err error) {
	k.name, k.broken = name, c.brokenOf(ctx, name)
	var id types.UID
	k.pod, k.gone, err = c.pod(ctx, name)
	switch {
	case errors.Is(err, errNoPod):
		old, err := c.onlyHistory(ctx, name, err)
		if err != nil && len(k.broken) > 0 {
			k.past = historyOfBroken(k.broken, c.client.now())
			return k, nil
		}
		if err != nil {
			return k, err
		}
		k.old, id = &old, old.UID
	case err != nil:
		return k, err
	case k.gone != nil:
		k.pod = k.gone.Pod
	}
	if k.pod != nil {
		id = k.pod.UID
		if k.events, err = c.client.events(ctx, id); err != nil {
			return k, err
		}
		if k.held, err = c.client.holdings(ctx); err != nil { // the agent may be older
			k.held = nil
		}
	}
	k.past, err = c.past(ctx, id)
	return k, err
}

// describe returns the page of the pod. width is that of the terminal, 0 if there is none.
func (k *known) describe(now time.Time, width int) string {
	switch {
	case k.pod != nil:
		return describe(k, now, width)
	case k.old != nil:
		return describeAbsent(k, now, width)
	default:
		return describeBroken(k, now, width)
	}
}

// past returns the history of a pod.
func (c *call) past(ctx context.Context, uid types.UID) (past []history.Entry, err error) {
	err = c.client.history(ctx, uid, false, func(e history.Entry) error { past = append(past, e); return nil })
	return past, err
}

// historyCommand is the command history.
func historyCommand(e Env) *cobra.Command {
	return e.command(&cobra.Command{
		Use: "history POD", Short: "show what happened to a pod, and why", GroupID: groupPods,
		Long: "The newest problem is above the table, and the newest line of the table is the first; with --follow " +
			"it is the last. Times are local. " +
			"Something was seen, by an event of the runtime, in a list of all pods or when the agent inspected the " +
			"pod; or it was decided; or it was done. Repeats are counted in one line.\n" +
			"The history of a pod that is gone from the node is kept for an hour. JSON and YAML have the oldest " +
			"entry first.",
		Example: `  minikubelet history web --since 10m
  minikubelet history web -f
  minikubelet history web -o json`,
	}, (*call).history, (*call).namespaceFlag, (*call).followFlag, (*call).historyFlags, (*call).outputFlag,
		(*call).leftFlag)
}

func (c *call) historyFlags(fs *pflag.FlagSet) {
	fs.DurationVar(&c.since, "since", 0, "print what is not older, such as 5s, 2m or 3h")
}

// history prints what happened to a pod.
func (c *call) history(ctx context.Context) error {
	switch {
	case len(c.args) != 1:
		return c.misused("want the name of one pod")
	case c.output == asName:
		return c.misused("--output name: a history has no names")
	case c.since < 0:
		return c.misused("--since must not be negative")
	}
	var past []history.Entry
	uid, err := c.historyUID(ctx, c.args[0])
	if errors.Is(err, errNoPod) {
		past = historyOfBroken(c.brokenOf(ctx, c.args[0]), c.client.now())
	}
	if err != nil && len(past) == 0 {
		return err
	}
	p := c.printer(historyColumns())
	recent := func(e history.Entry) bool { return c.since == 0 || c.client.now().Sub(e.Last) <= c.since }
	if c.follow && err == nil {
		err = c.client.history(ctx, uid, true, func(e history.Entry) error {
			switch {
			case !recent(e):
				return nil
			case p.form.structured():
				return p.document(historyValueOf(e))
			}
			if err := p.row("", historyCells(e, c.client.now())...); err != nil {
				return err
			}
			return p.flush()
		})
		if ctx.Err() != nil {
			return nil // a signal
		}
		return err
	}
	if err == nil {
		if past, err = c.past(ctx, uid); err != nil {
			return err
		}
	}
	past = slices.DeleteFunc(past, func(e history.Entry) bool { return !recent(e) })
	return c.printHistory(p, past)
}

// printHistory prints entries, which have the oldest first.
func (c *call) printHistory(p *printer, past []history.Entry) error {
	if p.form.structured() {
		all := historyList{Kind: "HistoryList", Items: []historyValue{}}
		for _, e := range past {
			all.Items = append(all.Items, historyValueOf(e))
		}
		return p.end(all)
	}
	now := c.client.now()
	switch latest := newestProblem(past); {
	case len(past) == 0 && c.since > 0:
		fmt.Fprintf(c.Err, "Nothing happened to the pod in the last %s.\n", duration.HumanDuration(c.since))
	case len(past) == 0:
		fmt.Fprintln(c.Err, "Nothing is known of the pod.")
	case latest != nil:
		fmt.Fprintln(c.Out,
			wrapped(fmt.Sprintf("The newest problem, %s ago: %s", duration.HumanDuration(now.Sub(latest.Last)),
				terminal.Escape(terminal.OneLine(history.Sentence(latest.Record)))), c.lineWidth()))
	}
	for _, e := range slices.Backward(past) {
		if err := p.row("", historyCells(e, now)...); err != nil {
			return err
		}
	}
	return p.flush()
}

// historyUID finds the pod whose history is meant.
func (c *call) historyUID(ctx context.Context, name string) (types.UID, error) {
	pod, gone, err := c.pod(ctx, name)
	switch {
	case errors.Is(err, errNoPod):
		known, err := c.onlyHistory(ctx, name, err)
		return known.UID, err
	case err != nil:
		return "", err
	case gone != nil:
		return gone.Pod.UID, nil
	}
	return pod.UID, nil
}

// onlyHistory finds the pod of which only the history is known: an earlier agent has run it,
// or it was rejected. The error is noPod if there is none.
func (c *call) onlyHistory(ctx context.Context, name string, noPod error) (history.Pod, error) {
	known, err := c.client.histories(ctx)
	if err != nil {
		return history.Pod{}, errors.Join(noPod, err)
	}
	var latest *history.Pod
	for i := range known.Pods {
		k := &known.Pods[i]
		stub := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: k.Name, UID: k.UID},
			Spec: v1.PodSpec{NodeName: known.NodeName}}
		if names(stub, c.podNamespace(), name) != notNamed && (latest == nil || k.GoneAt.After(latest.GoneAt)) {
			latest = k
		}
	}
	if latest == nil {
		return history.Pod{}, noPod
	}
	return *latest, nil
}

// podNamespace returns the namespace of the pod that a command is about.
func (c *call) podNamespace() string { return cmp.Or(c.namespace, v1.NamespaceDefault) }

// pod finds a pod by its name or UID. If it is gone from the node, pod is nil and gone is
// the pod of that name that was there last.
func (c *call) pod(ctx context.Context, name string) (pod *v1.Pod, gone *recent.Gone, err error) {
	pods, err := c.client.pods(ctx)
	if err != nil {
		return nil, nil, err
	}
	namespace := c.podNamespace()
	pod, err = choosePod(pods, namespace, name)
	if !errors.Is(err, errNoPod) {
		return pod, nil, err
	}
	all, goneErr := c.client.gone(ctx)
	if goneErr != nil {
		return nil, nil, errors.Join(err, goneErr)
	}
	for i := range all { // the latest first
		if names(all[i].Pod, namespace, name) != notNamed {
			return nil, &all[i], nil
		}
	}
	return nil, nil, err
}

// target finds the pod and the container that are meant. With logs it may be a pod that is
// gone and still has logs.
func (c *call) target(ctx context.Context, name string, logs bool) (*v1.Pod, string, error) {
	pod, err := c.podWithLogs(ctx, name, logs)
	if err != nil {
		return nil, "", err
	}
	container, note, err := chooseContainer(pod, c.container)
	if err == nil && note != "" {
		fmt.Fprintln(c.Err, terminal.Escape(note))
	}
	return pod, container, err
}

// podWithLogs finds the pod that is meant; with logs it may be one that is gone and still has logs.
func (c *call) podWithLogs(ctx context.Context, name string, logs bool) (*v1.Pod, error) {
	pod, gone, err := c.pod(ctx, name)
	switch {
	case err != nil || gone == nil:
		return pod, err
	case gone.Logs && logs:
		return gone.Pod, nil
	}
	removed := "containers and logs"
	if gone.Logs {
		removed = "containers"
	}
	return nil, fmt.Errorf("pod %s/%s ended %s ago, and its %s were removed; %s describe still shows its "+
		"last state and events",
		gone.Pod.Namespace, gone.Pod.Name, duration.HumanDuration(c.client.now().Sub(gone.At).Round(time.Second)),
		removed, c.Program)
}

// PathOf returns the path of exec, attach or containerLogs for a container of exactly this pod.
func PathOf(api string, pod *v1.Pod, container string) string {
	path := "/" + api
	for _, element := range []string{pod.Namespace, pod.Name, string(pod.UID), container} {
		path += "/" + url.PathEscape(element)
	}
	return path
}
