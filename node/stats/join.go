package stats

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// knownPod is a pod that runs, as the agent knows it. The names in every page are from here:
// a runtime reports usage by ID, and cannot report it in the name of another pod.
type knownPod struct {
	pod        *v1.Pod
	sandbox    *runtime.SandboxStatus // nil if the runtime does not have it any more
	containers []*runtime.ContainerStatus
	// shadowed means that a pod before it has its namespace and name.
	shadowed bool
}

// describe returns the pods that have a sandbox which is ready, or a container that runs. Of
// several instances of a container that run, the newest counts. The result is in the order of
// namespaces and names.
func describe(pods []*v1.Pod, status func(types.UID) (*runtime.PodStatus, bool)) []knownPod {
	out := make([]knownPod, 0, len(pods))
	names := make(map[types.NamespacedName]struct{}, len(pods))
	uids := make(map[types.UID]struct{}, len(pods))
	for _, pod := range pods {
		if _, twice := uids[pod.UID]; twice {
			continue
		}
		st, ok := status(pod.UID)
		if !ok || !st.Running() {
			continue
		}
		uids[pod.UID] = struct{}{}
		k := knownPod{pod: pod, sandbox: st.ReadySandbox()}
		if k.sandbox == nil && len(st.Sandboxes) > 0 {
			k.sandbox = &st.Sandboxes[0]
		}
		for i := range st.Containers {
			c := &st.Containers[i]
			if c.State == runtime.ContainerRunning && !slices.ContainsFunc(k.containers,
				func(o *runtime.ContainerStatus) bool { return o.Name == c.Name }) {
				k.containers = append(k.containers, c)
			}
		}
		slices.SortFunc(k.containers, func(a, b *runtime.ContainerStatus) int { return cmp.Compare(a.Name, b.Name) })
		name := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
		_, k.shadowed = names[name]
		names[name] = struct{}{}
		out = append(out, k)
	}
	slices.SortStableFunc(out, func(a, b knownPod) int {
		return cmp.Or(cmp.Compare(a.pod.Namespace, b.pod.Namespace), cmp.Compare(a.pod.Name, b.pod.Name))
	})
	return out
}

// usageByID is the usage of sandboxes and containers. Of an ID that is reported twice, the
// first report counts.
type usageByID struct {
	sandboxes  map[string]*runtime.SandboxUsage
	containers map[string]*runtime.ContainerUsage
	cgroups    map[string]*CgroupUsage
	now        time.Time
}

func usageOf(u *runtime.Usage, now time.Time) usageByID {
	out := usageByID{sandboxes: make(map[string]*runtime.SandboxUsage, len(u.Sandboxes)),
		containers: make(map[string]*runtime.ContainerUsage, len(u.Containers)), now: now}
	for i := range u.Sandboxes {
		if s := &u.Sandboxes[i]; out.sandboxes[s.ID] == nil {
			out.sandboxes[s.ID] = s
		}
	}
	for i := range u.Containers {
		if c := &u.Containers[i]; out.containers[c.ID] == nil {
			out.containers[c.ID] = c
		}
	}
	return out
}

// join adds the pods to the reading.
func (r *Reading) join(known []knownPod, usage usageByID, rates rates, files fileSystems, disk *disk) {
	r.Summary.Pods = make([]statsv1alpha1.PodStats, 0, len(known))
	r.Pods = make([]PodDetails, 0, len(known))
	for i := range known {
		k := &known[i]
		ps := statsv1alpha1.PodStats{
			PodRef: statsv1alpha1.PodReference{Name: k.pod.Name, Namespace: k.pod.Namespace,
				UID: string(k.pod.UID)},
			Containers: make([]statsv1alpha1.ContainerStats, 0, len(k.containers)),
		}
		details := PodDetails{Shadowed: k.shadowed, Containers: make([]ContainerDetails, 0, len(k.containers))}
		for _, c := range k.containers {
			cs := statsv1alpha1.ContainerStats{Name: c.Name, StartTime: metav1.NewTime(c.CreatedAt)}
			if u := usage.containers[c.ID.ID]; u != nil {
				u := saneContainer(u, usage.now)
				cs.CPU, cs.Memory, cs.Swap, cs.IO = u.CPU, u.Memory, u.Swap, u.IO
				rates.of(c.ID.ID, cs.CPU)
				if u.WritableLayer != nil {
					cs.Rootfs = files.share(u.WritableLayer, u.Mountpoint, usage.now)
				}
			}
			ps.Containers = append(ps.Containers, cs)
			details.Containers = append(details.Containers, ContainerDetails{ID: c.ID.ID, Image: c.Image,
				Cgroup: usage.cgroups[c.ID.ID]})
		}
		if k.sandbox != nil {
			details.SandboxID, ps.StartTime = k.sandbox.ID, metav1.NewTime(k.sandbox.CreatedAt)
			details.Cgroup = usage.cgroups[k.sandbox.ID]
			if u := usage.sandboxes[k.sandbox.ID]; u != nil {
				u := saneSandbox(u, usage.now)
				ps.CPU, ps.Memory, ps.IO = u.CPU, u.Memory, u.IO
				rates.of(k.sandbox.ID, ps.CPU)
				if !k.sandbox.HostNetwork {
					ps.Network = u.Network
				}
				if u.Processes != nil {
					ps.ProcessStats = &statsv1alpha1.ProcessStats{ProcessCount: u.Processes}
				}
			}
		}
		addUp(&ps)
		disk.add(&ps, k.pod, files, usage.now)
		r.Summary.Pods = append(r.Summary.Pods, ps)
		r.Pods = append(r.Pods, details)
	}
}

// addUp sets the usage of a pod to the sum of its containers where the runtime has reported only
// these. Swap is always that sum, since CRI has none for pods.
func addUp(ps *statsv1alpha1.PodStats) {
	var cpu, cores, working, usage, rss *uint64
	var at metav1.Time
	for i := range ps.Containers {
		c := &ps.Containers[i]
		if c.CPU != nil {
			cpu, cores, at = sum(cpu, c.CPU.UsageCoreNanoSeconds), sum(cores, c.CPU.UsageNanoCores), c.CPU.Time
		}
		if c.Memory != nil {
			working, usage, rss, at = sum(working, c.Memory.WorkingSetBytes), sum(usage, c.Memory.UsageBytes),
				sum(rss, c.Memory.RSSBytes), c.Memory.Time
		}
	}
	if ps.CPU == nil && cpu != nil {
		ps.CPU = &statsv1alpha1.CPUStats{Time: at, UsageCoreNanoSeconds: cpu, UsageNanoCores: cores}
	}
	if ps.Memory == nil && working != nil {
		ps.Memory = &statsv1alpha1.MemoryStats{Time: at, WorkingSetBytes: working, UsageBytes: usage, RSSBytes: rss}
	}
	ps.Swap = sumSwap(ps.Containers)
}

// sum returns the sum of two numbers that may be unknown.
func sum(a, b *uint64) *uint64 {
	if a == nil || b == nil {
		return cmp.Or(a, b)
	}
	n := min(*a+*b, maxAmount) // each is at most maxAmount
	return &n
}

// pods reads the usage of the pods from their cgroups.
func (m machine) pods(known []knownPod, cgroupOf func(*v1.Pod) string, now time.Time) usageByID {
	out := usageByID{sandboxes: map[string]*runtime.SandboxUsage{}, containers: map[string]*runtime.ContainerUsage{},
		cgroups: map[string]*CgroupUsage{}, now: now}
	for i := range known {
		k := &known[i]
		cgroup := cgroupOf(k.pod)
		if cgroup == "" {
			continue
		}
		paths := m.cgroups.containers(cgroup)
		for _, c := range k.containers {
			path, ok := paths[c.ID.ID]
			if !ok {
				continue
			}
			if u, ok := m.cgroups.read(path); ok {
				out.cgroups[c.ID.ID] = &u
				out.containers[c.ID.ID] = &runtime.ContainerUsage{ID: c.ID.ID, CPU: u.cpu(now), Memory: u.memory(now),
					Swap: u.swap(now), IO: u.io(now)}
			}
		}
		if k.sandbox == nil {
			continue
		}
		if u, ok := m.cgroups.read(cgroup); ok {
			s := &runtime.SandboxUsage{ID: k.sandbox.ID, CPU: u.cpu(now), Memory: u.memory(now),
				IO: u.io(now), Processes: u.Tasks}
			if path, ok := paths[k.sandbox.ID]; ok && !k.sandbox.HostNetwork {
				s.Network = m.podNetwork(path, now)
			}
			out.cgroups[k.sandbox.ID], out.sandboxes[s.ID] = &u, s
		}
	}
	return out
}

// podNetwork returns the network of a process in the cgroup of a sandbox.
func (m machine) podNetwork(cgroup string, now time.Time) *statsv1alpha1.NetworkStats {
	pid := m.cgroups.process(cgroup)
	if pid == "" {
		return nil
	}
	out := &statsv1alpha1.NetworkStats{Time: metav1.NewTime(now)}
	for _, i := range parseNetDev(m.file(pid + "/net/dev")) {
		if i.Name == "lo" {
			continue
		}
		if out.Name == "" || i.Name == "eth0" {
			out.InterfaceStats = i
		}
		out.Interfaces = append(out.Interfaces, i)
	}
	return out
}
