package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/kubeletkit/kubeletkit/examples/minikubelet/internal/control"
	"github.com/kubeletkit/kubeletkit/examples/minikubelet/internal/recent"
	"github.com/kubeletkit/kubeletkit/examples/minikubelet/internal/terminal"
	"github.com/kubeletkit/kubeletkit/history"
	"github.com/kubeletkit/kubeletkit/podspec"
)

// podsCommand is the command pods.
func podsCommand(e Env) *cobra.Command {
	return e.command(&cobra.Command{
		Use: "pods", Aliases: []string{"ps"}, Short: "list the pods", GroupID: groupPods,
		Example: `  minikubelet pods -n kube-system
  minikubelet pods -o wide
  minikubelet pods -o name`,
	}, (*call).pods, (*call).namespacesFlag, (*call).outputFlag)
}

// getCommand is the command get, by which people who know kubectl find pods and images.
func getCommand(e Env) *cobra.Command {
	get := &cobra.Command{
		Use: "get", Short: "list pods or images, as kubectl", GroupID: groupPods, Example: "  minikubelet get pods -A", RunE: onlyBelow,
	}
	pods := podsCommand(e)
	pods.Aliases = []string{"pod", "po"}
	get.AddCommand(pods, imagesCommand(e))
	for _, cmd := range get.Commands() {
		cmd.GroupID = ""
	}
	return get
}

// pods prints the list of the pods.
func (c *call) pods(ctx context.Context) error {
	if err := c.noArgs(); err != nil {
		return err
	}
	pods, err := c.client.pods(ctx)
	if err != nil {
		return err
	}
	list := v1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: []v1.Pod{}}
	p := c.printer(columns(append(terminal.PodColumns(), "|", "NODE", "SOURCE", "UID", "IMAGES")...))
	for _, pod := range terminal.SortPods(pods) {
		if !c.inNamespace(pod.Namespace) {
			continue
		}
		pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
		list.Items = append(list.Items, *pod)
		var images []string
		for i := range pod.Spec.Containers {
			images = append(images, pod.Spec.Containers[i].Image)
		}
		cells := terminal.PodCells(pod, c.client.now())
		for _, text := range []string{pod.Spec.NodeName, pod.Annotations[podspec.AnnotationConfigSource], string(pod.UID), strings.Join(images, ",")} {
			cells = append(cells, cmp.Or(terminal.Escape(text), "<none>"))
		}
		if err := p.row(qualifiedName(pod.Namespace, pod.Name), cells...); err != nil {
			return err
		}
	}
	if len(list.Items) == 0 && !c.output.structured() {
		fmt.Fprintln(c.Err, "No pods found.")
	}
	if err := p.end(list); err != nil || c.output.structured() || c.output == asName {
		return err
	}
	c.problems(ctx)
	return nil
}

// problems prints the manifests that cannot be used, of which no pod can be listed.
func (c *call) problems(ctx context.Context) {
	const most = 5
	ctx, cancel := context.WithTimeout(ctx, completeWithin) // the disk may be slow
	defer cancel()
	all, err := get[[]control.Problem](ctx, c.client, control.ProblemsPath, "manifests that cannot be used")
	if err != nil || len(all) == 0 { // the agent may be older
		return
	}
	fmt.Fprintln(c.Err, "\nManifests that cannot be used:")
	for _, problem := range all[:min(most, len(all))] {
		fmt.Fprintf(c.Err, "  %s: %s\n", terminal.Escape(problem.Path), terminal.Escape(strings.Join(strings.Fields(problem.Error), " ")))
	}
	if more := len(all) - most; more > 0 {
		fmt.Fprintf(c.Err, "  and %d more\n", more)
	}
}

// qualifiedName returns a name of the pod that all commands accept.
func qualifiedName(namespace, name string) string {
	return terminal.Escape(namespace) + "/" + terminal.Escape(name)
}

// describeCommand is the command describe.
func describeCommand(e Env) *cobra.Command {
	return e.command(&cobra.Command{
		Use: "describe POD", Short: "show the state of a pod and its latest events", GroupID: groupPods,
		Long:    "A pod that is gone from the node can be described until 100 others are gone after it.",
		Example: "  minikubelet describe web",
	}, (*call).describe, (*call).namespaceFlag)
}

// describe prints the state of a pod and its events.
func (c *call) describe(ctx context.Context) error {
	if len(c.args) != 1 {
		return c.misused("want the name of one pod")
	}
	pod, gone, err := c.pod(ctx, c.args[0])
	switch {
	case errors.Is(err, errNoPod):
		known, err := c.onlyHistory(ctx, c.args[0], err)
		if err != nil {
			return err
		}
		past, err := c.past(ctx, known.UID)
		if err == nil {
			_, err = io.WriteString(c.Out, describeAbsent(known, past, c.client.now()))
		}
		return err
	case err != nil:
		return err
	case gone != nil:
		pod = gone.Pod
	}
	events, err := c.client.events(ctx, pod.UID)
	if err != nil {
		return err
	}
	past, err := c.past(ctx, pod.UID)
	if err != nil {
		return err
	}
	held, err := c.client.holdings(ctx)
	if err != nil { // the agent may be older
		held = nil
	}
	_, err = io.WriteString(c.Out, describe(pod, gone, held, events, past, c.client.now()))
	return err
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
		Long: "Each line has the time, the age, the stage and a sentence. The stages: something was seen, by an event of the runtime, in a list of all " +
			"pods or when the agent inspected the pod; something was decided; or it was done. Repeats are counted in one line.\n" +
			"The history of a pod that is gone from the node is kept for an hour.",
		Example: `  minikubelet history web -f
  minikubelet history web -o json`,
	}, (*call).history, (*call).namespaceFlag, (*call).followFlag, (*call).outputFlag)
}

// history prints what happened to a pod.
func (c *call) history(ctx context.Context) error {
	if len(c.args) != 1 {
		return c.misused("want the name of one pod")
	}
	if c.output == asName {
		return c.misused("--output name: a history has no names")
	}
	uid, err := c.historyUID(ctx, c.args[0])
	if err != nil {
		return err
	}
	p := c.printer(historyColumns())
	all := items[historyValue]{Items: []historyValue{}}
	some := false
	err = c.client.history(ctx, uid, c.follow, func(e history.Entry) error {
		some = true
		value := historyValue{e, history.Sentence(e.Record)}
		switch {
		case !p.form.structured():
			return p.row("", historyCells(e, c.client.now())...)
		case c.follow:
			return p.document(value)
		}
		all.Items = append(all.Items, value)
		return nil
	})
	if err != nil || c.follow {
		if ctx.Err() != nil {
			return nil // a signal
		}
		return err
	}
	if !some && !p.form.structured() {
		fmt.Fprintln(c.Err, "Nothing is known of the pod.")
	}
	return p.end(all)
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
		stub := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: k.Name, UID: k.UID}, Spec: v1.PodSpec{NodeName: known.NodeName}}
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
	return nil, fmt.Errorf("pod %s/%s ended %s ago, and its %s were removed; minikubelet describe still shows its last state and events",
		gone.Pod.Namespace, gone.Pod.Name, duration.HumanDuration(c.client.now().Sub(gone.At).Round(time.Second)), removed)
}

func pathOf(api string, pod *v1.Pod, container string) string {
	path := "/" + api
	for _, element := range []string{pod.Namespace, pod.Name, string(pod.UID), container} {
		path += "/" + url.PathEscape(element)
	}
	return path
}
