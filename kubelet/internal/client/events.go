package client

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/kubeletkit/kubeletkit/kubelet/internal/control"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/terminal"
	"github.com/kubeletkit/kubeletkit/runtime"
)

func labelsOf(pod *v1.Pod) labels.Set { return labels.Set(pod.Labels) }

// eventsCommand is the command events.
func eventsCommand(e Env) *cobra.Command {
	return e.command(&cobra.Command{
		Use: "events [NAME]", Short: "list the latest events of all pods, or of one", GroupID: groupPods,
		Long: "The newest event is the last. The agent keeps up to 50 events of a pod until it ends, also of a pod " +
			"that is gone from the node.",
		Example: `  minikubelet events --types Warning
  minikubelet events web -w`,
	}, (*call).eventList, (*call).namespacesFlag, (*call).eventFlags, (*call).watchFlag, (*call).outputFlag)
}

func (c *call) eventFlags(fs *pflag.FlagSet) {
	fs.StringSliceVar(&c.types, "types", nil, "the types of the events: Normal, Warning (default: both)")
}

// eventList prints events.
func (c *call) eventList(ctx context.Context) error {
	if len(c.args) > 1 {
		return c.misused(fmt.Sprintf("unexpected argument %q", c.args[1]))
	}
	for _, kind := range c.types {
		if kind != v1.EventTypeNormal && kind != v1.EventTypeWarning {
			return c.misused(fmt.Sprintf("--types %q: want Normal or Warning", kind))
		}
	}
	var of types.UID
	if len(c.args) == 1 {
		c.namespace, c.args[0] = c.qualified(c.args[0])
		var err error
		if of, err = c.historyUID(ctx, c.args[0]); err != nil {
			return err
		}
	}
	p := c.printer([]column{{name: "LAST SEEN"}, {name: "TYPE", spare: true, color: typeColor}, {name: "REASON"},
		{name: "POD"}, {name: "CONTAINER", wide: true}, {name: "MESSAGE"}})
	return watchItems(ctx, c, p, "events", func() (found []item, _ any, _ error) {
		events, err := c.client.events(ctx)
		if err != nil {
			return nil, nil, err
		}
		all := v1.EventList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "EventList"}, Items: []v1.Event{}}
		for _, e := range events {
			if of != "" && e.Pod.UID != of || of == "" && !c.inNamespace(e.Pod.Namespace) || len(c.types) > 0 &&
				!slices.Contains(c.types, e.Type) {
				continue
			}
			i := eventItem(e, c.client.now())
			found, all.Items = append(found, i), append(all.Items, i.value.(v1.Event))
		}
		return found, all, nil
	})
}

func eventItem(e runtime.Event, now time.Time) item {
	pod := qualifiedName(e.Pod.Namespace, e.Pod.Name)
	return item{key: fmt.Sprint(e.Pod.UID, e.FieldPath, e.Reason, e.Message, e.First), name: pod,
		is: fmt.Sprint(e.Count),
		cells: []string{lastSeen(e, now), terminal.Escape(e.Type), terminal.Escape(e.Reason), pod,
			terminal.Escape(containerOf(e.FieldPath)), terminal.Escape(terminal.OneLine(e.Message))},
		value: eventOf(e)}
}

// eventOf returns the event as an API server has it, without a name.
func eventOf(e runtime.Event) v1.Event {
	return v1.Event{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Event"},
		ObjectMeta: metav1.ObjectMeta{Namespace: e.Pod.Namespace, Annotations: e.Annotations},
		InvolvedObject: v1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: e.Pod.Namespace, Name: e.Pod.Name,
			UID: e.Pod.UID, FieldPath: e.FieldPath},
		Type: e.Type, Reason: e.Reason, Message: e.Message, Count: int32(e.Count),
		FirstTimestamp: metav1.NewTime(e.First), LastTimestamp: metav1.NewTime(e.Last),
	}
}

// lastSeen returns the column LAST SEEN of kubectl.
func lastSeen(e runtime.Event, now time.Time) string {
	age := duration.HumanDuration(now.Sub(e.Last))
	if e.Count > 1 {
		age += fmt.Sprintf(" (x%d over %s)", e.Count, duration.HumanDuration(now.Sub(e.First)))
	}
	return age
}

func typeColor(kind string) string {
	if kind == v1.EventTypeWarning {
		return yellow
	}
	return ""
}

// events returns the latest events of all pods, the oldest first; those of some pods, if there are uids.
func (c *client) events(ctx context.Context, uids ...types.UID) ([]runtime.Event, error) {
	query := url.Values{}
	for _, uid := range uids {
		query.Add("uid", string(uid))
	}
	events, err := get[[]runtime.Event](ctx, c, control.EventsPath, query, "events")
	if len(uids) > 0 { // an agent of an earlier version answers with all
		events = slices.DeleteFunc(events, func(e runtime.Event) bool { return !slices.Contains(uids, e.Pod.UID) })
	}
	return events, err
}

// inspectCommand is the command inspect.
func inspectCommand(e Env) *cobra.Command {
	return e.command(&cobra.Command{
		Use: "inspect POD", Short: "print all that is known of a pod as JSON", GroupID: groupPods,
		Long: "It has the pod with its status, its events, its history, what its containers hold, and the manifests " +
			"that cannot be used and may be its own.",
		Example: `  minikubelet inspect web | jq .pod.status
  minikubelet inspect web -o yaml`,
	}, (*call).inspect, (*call).namespaceFlag, (*call).outputFlag, (*call).leftFlag)
}

// inspection is what is known of a pod.
type inspection struct {
	Pod *v1.Pod `json:"pod,omitempty"`
	// Gone means that the pod is gone from the node.
	Gone      bool              `json:"gone,omitempty"`
	Why       string            `json:"why"`
	Manifests []control.Problem `json:"manifests,omitempty"`
	Held      []control.Holding `json:"held,omitempty"`
	Events    []v1.Event        `json:"events"`
	History   []historyValue    `json:"history"`
}

// inspect prints what is known of a pod.
func (c *call) inspect(ctx context.Context) error {
	if len(c.args) != 1 {
		return c.misused("want the name of one pod")
	}
	if c.output == asTable {
		c.output = asJSON
	}
	if !c.output.structured() {
		return c.misused(fmt.Sprintf("--output %s: want json or yaml", c.output))
	}
	k, err := c.known(ctx, c.args[0])
	if err != nil {
		return err
	}
	i := inspection{Pod: k.pod, Gone: k.gone != nil, Manifests: k.broken, Events: []v1.Event{},
		History: []historyValue{}}
	for _, e := range k.events {
		i.Events = append(i.Events, eventOf(e))
	}
	if k.pod != nil {
		i.Pod.TypeMeta.APIVersion, i.Pod.TypeMeta.Kind = "v1", "Pod"
	}
	i.Why, _, _ = strings.Cut(k.describe(c.client.now(), 0), "\n")
	for _, h := range k.held {
		if k.pod != nil && k.gone == nil && h.Namespace == k.pod.Namespace && h.Pod == k.pod.Name {
			i.Held = append(i.Held, h)
		}
	}
	for _, e := range k.past {
		i.History = append(i.History, historyValueOf(e))
	}
	return PrintValue(c.Out, string(c.output), i)
}

// describe prints the state of a pod and its events.
func (c *call) describe(ctx context.Context) error {
	if c.ofNode {
		return c.describeNode(ctx)
	}
	if len(c.args) != 1 {
		return c.misused("want the name of one pod")
	}
	k, err := c.known(ctx, c.args[0])
	if err == nil {
		_, err = io.WriteString(c.Out, k.describe(c.client.now(), c.lineWidth()))
	}
	return err
}
