package client

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kubeletkit/kubeletkit/kubelet/internal/control"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/terminal"
)

// ratesWithin is how long a runtime and the agent may take until they have a rate of CPU usage: it
// takes two readings, which are some seconds apart.
const ratesWithin = 12 * time.Second

// topCommand is the command top.
func topCommand(e Env) *cobra.Command {
	return e.command(&cobra.Command{
		Use: "top [node]", Short: "show what pods use, or what the node uses", GroupID: groupPods,
		Long: "CPU is an average of some seconds; m is a thousandth of a processor. Memory is the working set, " +
			"which the kernel cannot reclaim.\n" +
			"With --devices: what containers hold for themselves, exclusive CPUs, memory of NUMA nodes, devices and claims.",
		Example: `  minikubelet top --containers
  minikubelet top --devices
  minikubelet top node -o json`,
		ValidArgs: []string{"node", "pods"},
	}, (*call).top, (*call).namespacesFlag, (*call).selectorFlag,
		sortFlag("cpu, memory (the most first), name, namespace"), (*call).topFlags, (*call).outputFlag)
}

func (c *call) topFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&c.containers, "containers", false, "show what each container uses")
	fs.BoolVar(&c.devices, "devices", false, "show the CPUs, memory, devices and claims that each container holds")
}

// top prints the usage.
func (c *call) top(ctx context.Context) error {
	ofNode := len(c.args) == 1 && isNode(c.args[0])
	if !ofNode && (len(c.args) > 1 || len(c.args) == 1 && c.args[0] != "pod" && c.args[0] != "pods") {
		return c.misused(fmt.Sprintf("unexpected argument %q", c.args[len(c.args)-1]))
	}
	if c.devices && (ofNode || c.containers) {
		return c.misused("--devices shows containers, and stands alone")
	}
	if by := c.listFlags.sortBy; by != "" && (c.devices || ofNode || usageOrders()[by] == nil) {
		return c.misused(fmt.Sprintf("--sort-by %q: want %s, of pods", by,
			strings.Join(slices.Sorted(maps.Keys(usageOrders())), ", ")))
	}
	if c.listFlags.selector != "" && (c.devices || ofNode) {
		return c.misused("--selector selects pods of a list of usage")
	}
	if c.devices {
		return c.topDevices(ctx)
	}
	labelled, err := c.labelled(ctx)
	if err != nil {
		return err
	}
	s, err := c.usage(ctx, ofNode)
	if err != nil {
		return err
	}
	if ofNode {
		return c.nodeUsage(&s.Node, goruntime.NumCPU()) // the agent is on this machine
	}
	pods := items[statsv1alpha1.PodStats]{Items: []statsv1alpha1.PodStats{}}
	for i := range s.Pods {
		if ref := s.Pods[i].PodRef; c.inNamespace(ref.Namespace) && (labelled == nil || labelled[ref.UID]) {
			pods.Items = append(pods.Items, s.Pods[i])
		}
	}
	if err := sortItems(c, pods.Items, usageOrders()); err != nil {
		return err
	}
	if len(pods.Items) == 0 && !c.output.structured() {
		fmt.Fprintln(c.Err, "No pods run.")
	}
	return c.podUsage(pods)
}

// labelled returns the UIDs of the pods that --selector selects, nil without it.
func (c *call) labelled(ctx context.Context) (map[string]bool, error) {
	if c.listFlags.selector == "" {
		return nil, nil
	}
	selector, err := c.selected()
	if err != nil {
		return nil, err
	}
	pods, err := c.client.pods(ctx)
	if err != nil {
		return nil, err
	}
	uids := map[string]bool{}
	for _, pod := range pods {
		uids[string(pod.UID)] = selector.Matches(labelsOf(pod))
	}
	return uids, nil
}

// usageOrders are what the usage of pods is sorted by.
func usageOrders() map[string]func(statsv1alpha1.PodStats) order {
	most := func(n *uint64) order {
		if n == nil {
			return order{}
		}
		return order{number: -float64(*n)}
	}
	return map[string]func(statsv1alpha1.PodStats) order{
		"name":      func(p statsv1alpha1.PodStats) order { return order{text: p.PodRef.Name} },
		"namespace": func(p statsv1alpha1.PodStats) order { return order{text: p.PodRef.Namespace} },
		"cpu": func(p statsv1alpha1.PodStats) order {
			if p.CPU == nil {
				return order{}
			}
			return most(p.CPU.UsageNanoCores)
		},
		"memory": func(p statsv1alpha1.PodStats) order {
			if p.Memory == nil {
				return order{}
			}
			return most(p.Memory.WorkingSetBytes)
		},
	}
}

// topDevices prints what containers hold.
func (c *call) topDevices(ctx context.Context) error {
	all, err := c.client.holdings(ctx)
	if err != nil {
		return err
	}
	list := items[control.Holding]{Items: []control.Holding{}}
	for _, h := range all {
		if c.inNamespace(h.Namespace) {
			list.Items = append(list.Items, h)
		}
	}
	if len(list.Items) == 0 && !c.output.structured() {
		fmt.Fprintln(c.Err, "No container holds CPUs, memory nodes or devices for itself.")
	}
	return c.holdings(list)
}

// holdings prints a table of what containers hold.
func (c *call) holdings(list items[control.Holding]) error {
	p := c.printer(columns("NAMESPACE", "POD", "CONTAINER", "RESOURCE", "HELD", "NUMA"))
	for _, h := range list.Items {
		nodes := cmp.Or(h.Nodes, "-")
		if err := p.row(qualifiedName(h.Namespace, h.Pod)+"/"+terminal.Escape(h.Container),
			terminal.Escape(h.Namespace), terminal.Escape(h.Pod),
			terminal.Escape(h.Container), terminal.Escape(h.Resource), terminal.Escape(h.Held),
			terminal.Escape(nodes)); err != nil {
			return err
		}
	}
	return p.end(list)
}

// usage returns the usage when its rates are known, or the last one after some time.
func (c *call) usage(ctx context.Context, ofNode bool) (*statsv1alpha1.Summary, error) {
	for end, first := time.Now().Add(ratesWithin), true; ; first = false {
		s, err := get[statsv1alpha1.Summary](ctx, c.client, "/stats/summary", nil, "usage")
		if err != nil || hasRates(&s, ofNode) || time.Now().After(end) {
			return &s, err
		}
		if first && !c.output.structured() {
			fmt.Fprintln(c.Err, "Measuring the usage of CPU, which takes some seconds.")
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(time.Second):
		}
	}
}

// hasRates reports whether a rate is known of the node, or of each pod that has a CPU time.
func hasRates(s *statsv1alpha1.Summary, ofNode bool) bool {
	if ofNode {
		return s.Node.CPU == nil || s.Node.CPU.UsageNanoCores != nil
	}
	for i := range s.Pods {
		if cpu := s.Pods[i].CPU; cpu != nil && cpu.UsageNanoCores == nil {
			return false
		}
	}
	return true
}

// podUsage prints the table of kubectl top pods.
func (c *call) podUsage(pods items[statsv1alpha1.PodStats]) error {
	names := []string{"NAMESPACE", "NAME", "CPU(cores)", "MEMORY(bytes)", "|", "DISK(bytes)"}
	if c.containers {
		names = slices.Insert(names, 1, "POD")
	} else {
		names = append(names, "PROCESSES")
	}
	p := c.printer(columns(names...))
	for i := range pods.Items {
		pod := &pods.Items[i]
		namespace, name := terminal.Escape(pod.PodRef.Namespace), terminal.Escape(pod.PodRef.Name)
		if !c.containers {
			processes := unknownUsage
			if s := pod.ProcessStats; s != nil && s.ProcessCount != nil {
				processes = strconv.FormatUint(*s.ProcessCount, 10)
			}
			if err := p.row(qualifiedName(namespace, name), namespace, name, millicores(pod.CPU), mebibytes(pod.Memory),
				used(pod.EphemeralStorage), processes); err != nil {
				return err
			}
			continue
		}
		for j := range pod.Containers {
			of := &pod.Containers[j]
			container := terminal.Escape(of.Name)
			if err := p.row(qualifiedName(namespace, name)+"/"+container, namespace, name, container,
				millicores(of.CPU), mebibytes(of.Memory), used(of.Rootfs, of.Logs)); err != nil {
				return err
			}
		}
	}
	return p.end(pods)
}

// nodeUsage prints the table of kubectl top nodes. Percentages are of the whole machine.
func (c *call) nodeUsage(n *statsv1alpha1.NodeStats, cores int) error {
	cpu, memory := unknownUsage, unknownUsage
	if n.CPU != nil && n.CPU.UsageNanoCores != nil {
		cpu = fmt.Sprintf("%d%%", *n.CPU.UsageNanoCores/uint64(max(cores, 1))/1e7)
	}
	if m := n.Memory; m != nil && m.WorkingSetBytes != nil && m.AvailableBytes != nil &&
		*m.WorkingSetBytes+*m.AvailableBytes > 0 {
		memory = fmt.Sprintf("%d%%", 100**m.WorkingSetBytes/(*m.WorkingSetBytes+*m.AvailableBytes))
	}
	p := c.printer(columns("NAME", "CPU(cores)", "CPU(%)", "MEMORY(bytes)", "MEMORY(%)", "|", "DISK(bytes)"))
	name := terminal.Escape(n.NodeName)
	if err := p.row(name, name, millicores(n.CPU), cpu, mebibytes(n.Memory), memory, used(n.Fs)); err != nil {
		return err
	}
	return p.end(n)
}

// unknownUsage is kubectl's word.
const unknownUsage = "<unknown>"

// used returns how much of file systems is used.
func used(all ...*statsv1alpha1.FsStats) string {
	var sum uint64
	for _, fs := range all {
		if fs == nil || fs.UsedBytes == nil {
			return unknownUsage
		}
		sum += *fs.UsedBytes
	}
	return fmt.Sprintf("%dMi", sum>>20)
}

func millicores(c *statsv1alpha1.CPUStats) string {
	if c == nil || c.UsageNanoCores == nil {
		return unknownUsage
	}
	return fmt.Sprintf("%dm", (*c.UsageNanoCores+1e6-1)/1e6) // as kubectl, which rounds up
}

func mebibytes(m *statsv1alpha1.MemoryStats) string {
	if m == nil || m.WorkingSetBytes == nil {
		return unknownUsage
	}
	return fmt.Sprintf("%dMi", *m.WorkingSetBytes>>20)
}
