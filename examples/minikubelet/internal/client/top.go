package client

import (
	"context"
	"fmt"
	"io"
	goruntime "runtime"
	"strings"
	"text/tabwriter"
	"time"

	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kubeletkit/kubeletkit/examples/minikubelet/internal/terminal"
)

// ratesWithin is how long a runtime and the agent may take until they have a rate of CPU usage: it
// takes two readings, which are some seconds apart.
const ratesWithin = 12 * time.Second

// top prints the table of usage.
func (c *call) top(ctx context.Context) error {
	ofNode := len(c.args) == 1 && (c.args[0] == "node" || c.args[0] == "nodes")
	if !ofNode && (len(c.args) > 1 || len(c.args) == 1 && c.args[0] != "pod" && c.args[0] != "pods") {
		return c.misused(fmt.Sprintf("unexpected argument %q", c.args[len(c.args)-1]))
	}
	s, err := c.usage(ctx, ofNode)
	if err != nil {
		return err
	}
	if ofNode {
		_, err = io.WriteString(c.Out, nodeUsageTable(s, goruntime.NumCPU())) // the agent is on this machine
		return err
	}
	var pods []statsv1alpha1.PodStats
	for i := range s.Pods {
		if c.namespace == "" || s.Pods[i].PodRef.Namespace == c.namespace {
			pods = append(pods, s.Pods[i])
		}
	}
	if len(pods) == 0 {
		fmt.Fprintln(c.Err, "No pods run.")
		return nil
	}
	_, err = io.WriteString(c.Out, usageTable(pods, c.containers))
	return err
}

// usage returns the usage when its rates are known, or the last one after some time.
func (c *call) usage(ctx context.Context, ofNode bool) (*statsv1alpha1.Summary, error) {
	for end := time.Now().Add(ratesWithin); ; {
		s, err := get[statsv1alpha1.Summary](ctx, c.client, "/stats/summary", "usage")
		if err != nil || hasRates(&s, ofNode) || time.Now().After(end) {
			return &s, err
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

// usageTable is the table of kubectl top pods.
func usageTable(pods []statsv1alpha1.PodStats, containers bool) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 3, ' ', 0)
	head := "NAMESPACE\tNAME\tCPU(cores)\tMEMORY(bytes)\n"
	if containers {
		head = "NAMESPACE\tPOD\tNAME\tCPU(cores)\tMEMORY(bytes)\n"
	}
	io.WriteString(w, head)
	for i := range pods {
		p := &pods[i]
		pod := terminal.Escape(p.PodRef.Namespace) + "\t" + terminal.Escape(p.PodRef.Name)
		if !containers {
			fmt.Fprintf(w, "%s\t%s\t%s\n", pod, millicores(p.CPU), mebibytes(p.Memory))
			continue
		}
		for j := range p.Containers {
			c := &p.Containers[j]
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", pod, terminal.Escape(c.Name), millicores(c.CPU), mebibytes(c.Memory))
		}
	}
	w.Flush()
	return b.String()
}

// nodeUsageTable is the table of kubectl top nodes. Percentages are of the whole machine.
func nodeUsageTable(s *statsv1alpha1.Summary, cores int) string {
	n := &s.Node
	cpu, memory := "<unknown>", "<unknown>"
	if n.CPU != nil && n.CPU.UsageNanoCores != nil {
		cpu = fmt.Sprintf("%d%%", *n.CPU.UsageNanoCores/uint64(max(cores, 1))/1e7)
	}
	if m := n.Memory; m != nil && m.WorkingSetBytes != nil && m.AvailableBytes != nil && *m.WorkingSetBytes+*m.AvailableBytes > 0 {
		memory = fmt.Sprintf("%d%%", 100**m.WorkingSetBytes/(*m.WorkingSetBytes+*m.AvailableBytes))
	}
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 3, ' ', 0)
	fmt.Fprintf(w, "NAME\tCPU(cores)\tCPU(%%)\tMEMORY(bytes)\tMEMORY(%%)\n%s\t%s\t%s\t%s\t%s\n",
		terminal.Escape(n.NodeName), millicores(n.CPU), cpu, mebibytes(n.Memory), memory)
	w.Flush()
	return b.String()
}

func millicores(c *statsv1alpha1.CPUStats) string {
	if c == nil || c.UsageNanoCores == nil {
		return "<unknown>"
	}
	return fmt.Sprintf("%dm", (*c.UsageNanoCores+1e6-1)/1e6) // as kubectl, which rounds up
}

func mebibytes(m *statsv1alpha1.MemoryStats) string {
	if m == nil || m.WorkingSetBytes == nil {
		return "<unknown>"
	}
	return fmt.Sprintf("%dMi", *m.WorkingSetBytes>>20)
}
