package stats

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// NodeCgroup is a cgroup of the node that is measured, beside those of pods.
type NodeCgroup struct {
	// Name is that of a system container in the summary, see [statsv1alpha1.SystemContainerKubelet] and the others. A
	// cgroup without a name is not in the summary.
	Name string
	// Cgroup is its path, as in "/kubepods".
	Cgroup string
	// Started is when what is in it has started. Default: when the cgroup was made.
	Started time.Time
}

// NodeCgroupUsage is the usage of a [NodeCgroup].
type NodeCgroupUsage struct {
	NodeCgroup
	Stats statsv1alpha1.ContainerStats
	// Usage is what the kernel counts.
	Usage CgroupUsage
}

// system adds the cgroups of the node to the reading, those of which nothing is known left out.
func (c *Collector) system(r *Reading) {
	if c.opts.NodeCgroups == nil {
		return
	}
	for _, n := range c.opts.NodeCgroups() {
		if n.Cgroup == "" {
			continue
		}
		usage, ok := c.machine.cgroups.read(n.Cgroup)
		if !ok {
			continue
		}
		if n.Started.IsZero() {
			n.Started = c.machine.cgroups.made(n.Cgroup)
		}
		s := statsv1alpha1.ContainerStats{Name: n.Name, StartTime: metav1.NewTime(n.Started), CPU: usage.cpu(r.Time),
			Memory: usage.memory(r.Time), Swap: usage.swap(r.Time), IO: usage.io(r.Time)}
		c.rates.of("cgroup "+n.Name+" "+n.Cgroup, s.CPU)
		r.Cgroups = append(r.Cgroups, NodeCgroupUsage{n, s, usage})
		if n.Name != "" {
			r.Summary.Node.SystemContainers = append(r.Summary.Node.SystemContainers, s)
		}
	}
}

// made returns when a cgroup was made, as far as the file system has it.
func (g cgroups) made(cgroup string) time.Time {
	dir := filepath.Join(g.mount, g.lister(), cgroup)
	for _, path := range []string{filepath.Join(dir, "cgroup.clone_children"), dir} {
		// the first only with version 1, as for cAdvisor
		if info, err := os.Stat(path); err == nil {
			return info.ModTime()
		}
	}
	return time.Time{}
}

// OwnCgroup returns the cgroup of this process; "" if it is not known, or with cgroup v1 not the same for CPU and
// memory, as for kubelet.
func OwnCgroup() string {
	data, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return ""
	}
	return ownCgroup(string(data))
}

// ownCgroup reads /proc/<pid>/cgroup.
func ownCgroup(text string) string {
	of := map[string]string{}
	for line := range strings.Lines(text) {
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) != 3 {
			continue
		}
		for controller := range strings.SplitSeq(parts[1], ",") {
			of[controller] = parts[2]
		}
	}
	cpu, v1 := of["cpu"]
	switch {
	case !v1:
		return of[""]
	case cpu != of["memory"]:
		return ""
	}
	return cpu
}

// containerPaths are the paths of the cgroups of sandboxes and containers by ID. A path does not change, so the
// directory of a pod is listed only for IDs that are new. It belongs to the reading in progress.
type containerPaths struct{ byID map[string]string }

// name sets the cgroups of pods and containers in the reading.
func (p *containerPaths) name(r *Reading, known []knownPod, c *Collector) {
	if c.opts.PodCgroup == nil {
		return
	}
	now := make(map[string]string, len(p.byID))
	for i := range known {
		k, d := &known[i], &r.Pods[i]
		pod := c.opts.PodCgroup(k.pod)
		if pod == "" {
			continue
		}
		listed := false
		find := func(id string) string {
			path, ok := p.byID[id]
			if !ok && !listed {
				listed = true
				found := c.machine.cgroups.containers(pod)
				if p.byID == nil {
					p.byID = map[string]string{}
				}
				maps.Copy(p.byID, found)
				path, ok = found[id]
			}
			if ok {
				now[id] = path
			}
			return path
		}
		for j := range d.Containers {
			d.Containers[j].CgroupPath = find(d.Containers[j].ID)
		}
		if d.SandboxID != "" && find(d.SandboxID) != "" {
			d.CgroupPath = pod
		}
	}
	p.byID = now
}
