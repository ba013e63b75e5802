package client

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/kubeletkit/kubeletkit/gc"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/control"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/terminal"
)

// isNode reports whether an argument is kubectl's word for nodes.
func isNode(arg string) bool { return slices.Contains([]string{"node", "nodes", "no"}, arg) }

// nodesCommand is the command get nodes.
func nodesCommand(e Env) *cobra.Command {
	return e.command(&cobra.Command{
		Use: "nodes", Aliases: []string{"node", "no"}, Short: "show the node of the agent", GroupID: groupPods,
		Example: "  minikubelet get nodes -o wide\n  minikubelet get nodes -o json | jq .items[0].status.allocatable",
	}, (*call).nodes, (*call).watchFlag, (*call).outputFlag)
}

// node returns the node of the agent.
func (c *client) node(ctx context.Context) (v1.Node, error) {
	return get[v1.Node](ctx, c, control.NodePath, nil, "nodes")
}

// nodes prints the table of kubectl get nodes.
func (c *call) nodes(ctx context.Context) error {
	if err := c.noArgs(); err != nil {
		return err
	}
	p := c.printer(columns("NAME", "STATUS", "AGE", "VERSION", "|", "INTERNAL-IP", "OS-IMAGE", "KERNEL-VERSION",
		"CONTAINER-RUNTIME"))
	return watchItems(ctx, c, p, "nodes", func() ([]item, any, error) {
		node, err := c.client.node(ctx)
		node.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}
		list := v1.NodeList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NodeList"}, Items: []v1.Node{node}}
		return []item{nodeItem(&node, c.client.now())}, list, err
	})
}

func nodeItem(node *v1.Node, now time.Time) item {
	age, ip := "<unknown>", "<none>"
	if !node.CreationTimestamp.IsZero() {
		age = duration.HumanDuration(now.Sub(node.CreationTimestamp.Time))
	}
	for _, a := range node.Status.Addresses {
		if a.Type == v1.NodeInternalIP {
			ip = a.Address
			break
		}
	}
	info := &node.Status.NodeInfo
	cells := []string{node.Name, NodeStatus(node), age, info.KubeletVersion, ip, info.OSImage, info.KernelVersion,
		info.ContainerRuntimeVersion}
	for i := range cells {
		cells[i] = terminal.Escape(cmp.Or(cells[i], "<unknown>"))
	}
	return item{key: "node", name: "node/" + cells[0], cells: cells, value: node,
		is: strings.Join(slices.Concat(cells[:2], cells[3:]), "\n")}
}

// NodeStatus returns the column STATUS of kubectl, with what the node is short of.
func NodeStatus(node *v1.Node) string {
	ready, more := "NotReady", ""
	for _, condition := range node.Status.Conditions {
		switch {
		case condition.Status != v1.ConditionTrue:
		case condition.Type == v1.NodeReady:
			ready = "Ready"
		default:
			more += "," + string(condition.Type)
		}
	}
	if node.Spec.Unschedulable {
		more += ",SchedulingDisabled"
	}
	return ready + more
}

// describeNode prints the state of the node.
func (c *call) describeNode(ctx context.Context) error {
	node, err := c.client.node(ctx)
	if err != nil {
		return err
	}
	if len(c.args) > 2 || len(c.args) == 2 && c.args[1] != node.Name {
		return c.misused("there is one node, " + node.Name)
	}
	images, err := c.client.images(ctx, gc.AllUnusedImages)
	if err != nil { // an agent may have none
		images = gc.ImagePreview{}
	}
	_, err = io.WriteString(c.Out, describeNode(&node, images.Input.Images, c.client.now(), c.lineWidth(),
		c.Program.String()))
	return err
}

func describeNode(node *v1.Node, images []gc.Image, now time.Time, width int, program string) string {
	d := newDescription(now, width)
	st := &node.Status
	d.line(0, "Name", "%s", node.Name)
	d.pairs("Labels", node.Labels)
	d.line(0, "Status", "%s", NodeStatus(node))
	for _, taint := range node.Spec.Taints {
		d.line(0, "Taint", "%s", taint.ToString())
	}
	var addresses []string
	for _, a := range st.Addresses {
		addresses = append(addresses, string(a.Type)+" "+a.Address)
	}
	d.optional(0, "Addresses", strings.Join(addresses, ", "))
	fmt.Fprintln(d.w, "Conditions:")
	for _, condition := range st.Conditions {
		d.line(1, string(condition.Type), "%s", strings.TrimRight(string(condition.Status)+" "+condition.Message, " "))
	}
	d.line(0, "Capacity", "%s", resources(st.Capacity))
	d.line(0, "Allocatable", "%s", resources(st.Allocatable))
	info := &st.NodeInfo
	d.optional(0, "Machine", strings.Join([]string{info.OSImage, info.KernelVersion, info.OperatingSystem + "/" +
		info.Architecture}, ", "))
	d.optional(0, "Runtime", info.ContainerRuntimeVersion)
	d.optional(0, "Kubelet", info.KubeletVersion)
	var size int64
	for i := range images {
		size += images[i].Size
	}
	d.line(0, "Images", "%d, %s; %s images lists them", len(images), bytes(size), program)
	return d.page()
}
