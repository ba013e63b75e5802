package client

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/kubelet/internal/terminal"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// podsCommand is the command pods.
func podsCommand(e Env) *cobra.Command {
	return e.command(&cobra.Command{
		Use: "pods [NAME...]", Aliases: []string{"ps"}, Short: "list the pods", GroupID: groupPods,
		Long: "Why pods are not ready, and which manifests cannot be used, is below the table, in the standard error. " +
			"If no agent runs, the pods are those that it has left.",
		Example: `  minikubelet pods -n kube-system
  minikubelet pods -l app=web -w
  minikubelet pods -o wide --sort-by restarts
  minikubelet pods web -o yaml`,
	}, (*call).pods, (*call).namespacesFlag, (*call).selectorFlag, sortFlag("age, name, namespace, restarts, "+
		"status, or a field such as .metadata.name"), (*call).watchFlag, (*call).outputFlag, (*call).leftFlag)
}

// getCommand is the command get, by which people who know kubectl find pods and images.
func getCommand(e Env) *cobra.Command {
	get := &cobra.Command{
		Use: "get", Short: "list pods, events, images or the node, as kubectl", GroupID: groupPods,
		Example: "  minikubelet get pods -A", RunE: onlyBelow,
	}
	pods := podsCommand(e)
	pods.Aliases = []string{"pod", "po"}
	events := eventsCommand(e)
	events.Aliases = []string{"event", "ev"}
	get.AddCommand(pods, events, imagesCommand(e), nodesCommand(e))
	for _, cmd := range get.Commands() {
		cmd.GroupID = ""
	}
	return get
}

// podOrders are what pods are sorted by.
func podOrders() map[string]func(*v1.Pod) order {
	return map[string]func(*v1.Pod) order{
		"name":      func(p *v1.Pod) order { return order{text: p.Name} },
		"namespace": func(p *v1.Pod) order { return order{text: p.Namespace} },
		"status":    func(p *v1.Pod) order { return order{text: terminal.Summarize(p).Status} },
		"restarts":  func(p *v1.Pod) order { return order{number: float64(terminal.Summarize(p).Restarts)} },
		"age": func(p *v1.Pod) order { // the youngest first
			began := p.CreationTimestamp.Time
			if began.IsZero() && p.Status.StartTime != nil {
				began = p.Status.StartTime.Time
			}
			return order{number: -float64(began.Unix())}
		},
	}
}

// podColumns are the columns of a list of pods.
func podColumns() []column {
	all := columns(append(terminal.PodColumns(), "|", "NODE", "SOURCE", "UID", "IMAGES")...)
	for i := range all {
		switch all[i].name {
		case "STATUS":
			all[i].color = statusColor
		case "RESTARTS", "AGE", "IP":
			all[i].spare = true
		}
	}
	return all
}

// The colors of a status: parameters of SGR.
const (
	green  = "32"
	yellow = "33"
	red    = "31"
)

// statusColor returns the color of a status: green if it is as it should be, yellow while it becomes so, and red
// if it needs somebody.
func statusColor(status string) string {
	_, inner, isInit := strings.Cut(status, "Init:")
	switch {
	case status == "Running" || status == "Completed" || status == "Succeeded":
		return green
	case slices.Contains([]string{"Pending", "ContainerCreating", "PodInitializing", "Terminating",
		"NotReady", statusGone, reasonWaits}, status) ||
		isInit && strings.Contains(inner, "/"):
		return yellow
	default:
		return red
	}
}

// reasonWaits is the agent's reason for a pod that waits until another one of its name has ended.
const reasonWaits = "WaitingForPredecessor"

// pods prints the list of the pods.
func (c *call) pods(ctx context.Context) error {
	var list []*v1.Pod
	err := watchItems(ctx, c, c.printer(podColumns()), "pods", func() (found []item, _ any, err error) {
		if list, err = c.listPods(ctx); err != nil {
			return nil, nil, err
		}
		all := v1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: []v1.Pod{}}
		for _, pod := range list {
			found = append(found, c.podItem(pod))
			all.Items = append(all.Items, *pod)
		}
		if len(c.args) == 1 && len(list) == 1 { // as kubectl
			return found, list[0], nil
		}
		return found, all, nil
	})
	if err != nil || c.listFlags.watch || c.output.structured() || c.output == asName {
		return err
	}
	var lines []string
	for _, w := range c.waiting(ctx, list) {
		lines = append(lines, w.Namespace+"/"+w.Name+": "+w.Why)
	}
	c.below("Pods that are not ready:", lines, "status names all")
	c.problems(ctx)
	return nil
}

// listPods returns the pods that the arguments and flags select.
func (c *call) listPods(ctx context.Context) (list []*v1.Pod, err error) {
	selector, err := c.selected()
	if err != nil {
		return nil, err
	}
	if len(c.args) > 0 && c.listFlags.selector != "" {
		return nil, c.misused("want the names of pods or --selector, not both")
	}
	all, err := c.client.pods(ctx)
	if err != nil {
		return nil, err
	}
	for _, pod := range terminal.SortPods(all) {
		pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
		if len(c.args) == 0 && c.inNamespace(pod.Namespace) && selector.Matches(labelsOf(pod)) {
			list = append(list, pod)
		}
	}
	for _, arg := range c.args {
		namespace, name := c.qualified(arg)
		pod, err := choosePod(all, namespace, name)
		if err != nil {
			return nil, err
		}
		list = append(list, pod)
	}
	return list, sortItems(c, list, podOrders())
}

// qualified returns the namespace and the name of an argument that may be NAMESPACE/POD or pod/POD.
func (c *call) qualified(arg string) (namespace, name string) {
	name = strings.TrimPrefix(strings.TrimPrefix(arg, "pod/"), "pods/")
	if namespace, pod, ok := strings.Cut(name, "/"); ok && namespace != "" {
		return namespace, pod
	}
	return c.podNamespace(), name
}

// statusGone is the status of a pod that is not in a list any more that is watched.
const statusGone = "Gone"

func (c *call) podItem(pod *v1.Pod) item {
	s := terminal.Summarize(pod)
	return item{key: string(pod.UID), name: "pod/" + terminal.Escape(pod.Name), value: pod, cells: c.podCells(pod),
		is: fmt.Sprint(s.Ready, s.Total, s.Restarts, s.Status, pod.Status.PodIP),
		gone: func() []string {
			// The status is that of the reason, if there are no containers.
			pod.Status, pod.DeletionTimestamp = v1.PodStatus{Reason: statusGone, StartTime: pod.Status.StartTime,
				PodIP: pod.Status.PodIP}, nil
			return c.podCells(pod)
		}}
}

// podCells returns the row of a pod.
func (c *call) podCells(pod *v1.Pod) []string {
	var images []string
	for i := range pod.Spec.Containers {
		images = append(images, pod.Spec.Containers[i].Image)
	}
	cells := terminal.PodCells(pod, c.client.now())
	for _, text := range []string{pod.Spec.NodeName, pod.Annotations[podspec.AnnotationConfigSource], string(pod.UID),
		strings.Join(images, ",")} {
		cells = append(cells, cmp.Or(terminal.Escape(text), "<none>"))
	}
	return cells
}
