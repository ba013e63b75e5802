package statsmetrics

import (
	"cmp"
	"slices"
	"time"

	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kubeletkit/kubeletkit/node/stats"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// subject is what a series of /metrics/cadvisor is about: the machine with the ID "/", a cgroup of the node, a pod
// without a container, or a container. Its ID is the path of its cgroup, as for kubelet; that of a pod or container
// whose cgroup is not known is that of the runtime.
type subject struct {
	labels  []label // the six labels that kubelet gives to every series
	cpu     *statsv1alpha1.CPUStats
	memory  *statsv1alpha1.MemoryStats
	swap    *statsv1alpha1.SwapStats
	io      *statsv1alpha1.IOStats
	network *statsv1alpha1.NetworkStats
	fs      *statsv1alpha1.FsStats
	cgroup  *stats.CgroupUsage
	tasks   *uint64
	started time.Time
	at      time.Time
}

func subjects(r *stats.Reading) (list []subject, byID map[string][]label) {
	n := &r.Summary.Node
	root := subject{labels: identity("", "/", "", "", "", ""), cpu: n.CPU, memory: n.Memory, swap: n.Swap, io: n.IO,
		network: n.Network, fs: n.Fs, started: n.StartTime.Time, at: r.Time}
	if n.Rlimit != nil && n.Rlimit.NumOfRunningProcesses != nil && *n.Rlimit.NumOfRunningProcesses >= 0 {
		tasks := uint64(*n.Rlimit.NumOfRunningProcesses)
		root.tasks = &tasks
	}
	list, byID = append(list, root), map[string][]label{}
	for i := range r.Cgroups {
		c := &r.Cgroups[i]
		if c.Cgroup == "/" || slices.ContainsFunc(list, func(s subject) bool { return s.labels[1].value == c.Cgroup }) {
			continue // a system container may have the cgroup of another one
		}
		list = append(list, subject{
			labels: identity("", c.Cgroup, "", "", "", ""),
			cpu:    c.Stats.CPU, memory: c.Stats.Memory, swap: c.Stats.Swap, io: c.Stats.IO, cgroup: &c.Usage,
			tasks: c.Usage.Tasks, started: c.Stats.StartTime.Time, at: r.Time,
		})
	}
	for i := range r.Summary.Pods {
		p, d := &r.Summary.Pods[i], &r.Pods[i]
		if d.SandboxID != "" {
			s := subject{
				labels: identity("", cmp.Or(d.CgroupPath, d.SandboxID), "", "", p.PodRef.Namespace, p.PodRef.Name),
				cpu:    p.CPU, memory: p.Memory, swap: p.Swap, io: p.IO, network: p.Network, cgroup: d.Cgroup,
				started: p.StartTime.Time, at: r.Time,
			}
			if p.ProcessStats != nil {
				s.tasks = p.ProcessStats.ProcessCount
			}
			list, byID[d.SandboxID] = append(list, s), s.labels
		}
		for j := range p.Containers {
			c, cd := &p.Containers[j], &d.Containers[j]
			s := subject{
				labels: identity(c.Name, cmp.Or(cd.CgroupPath, cd.ID), cd.Image, cd.ID, p.PodRef.Namespace,
					p.PodRef.Name),
				cpu: c.CPU, memory: c.Memory, swap: c.Swap, io: c.IO, fs: c.Rootfs, cgroup: cd.Cgroup,
				started: c.StartTime.Time, at: r.Time,
			}
			list, byID[cd.ID] = append(list, s), s.labels
		}
	}
	return list, byID
}

// cgroupPath returns the path of the cgroup, or the ID of the runtime.
func (s *subject) cgroupPath() string { return s.labels[1].value }

// identity returns the labels of every series, in the order of their names.
func identity(container, id, image, name, namespace, pod string) []label {
	return []label{{"container", container}, {"id", id}, {"image", image}, {"name", name}, {"namespace", namespace},
		{"pod", pod}}
}

// metric is a family of /metrics/cadvisor from a reading.
type metric struct {
	name, kind, help string
	// exact means that the family of a runtime of that name is left out: it is the same, but
	// in whole seconds.
	exact bool
	write func(t *text, s *subject)
}

const seconds = float64(time.Second)

// metrics returns the families, in no order. Help texts are cAdvisor's (metrics/prometheus.go at
// 0.56).
func metrics() []metric {
	cpu := func(f func(c *statsv1alpha1.CPUStats) *uint64, extra ...label) func(*text, *subject) {
		return func(t *text, s *subject) {
			if s.cpu != nil {
				t.number(f(s.cpu), seconds, s.cpu.Time.Time, s.labels, extra)
			}
		}
	}
	memory := func(f func(m *statsv1alpha1.MemoryStats) *uint64) func(*text, *subject) {
		return func(t *text, s *subject) {
			if s.memory != nil {
				t.number(f(s.memory), 1, s.memory.Time.Time, s.labels)
			}
		}
	}
	network := func(f func(i *statsv1alpha1.InterfaceStats) *uint64) func(*text, *subject) {
		return func(t *text, s *subject) {
			if s.network == nil {
				return
			}
			for i := range s.network.Interfaces {
				t.number(f(&s.network.Interfaces[i]), 1, s.network.Time.Time, s.labels,
					[]label{{"interface", s.network.Interfaces[i].Name}})
			}
		}
	}
	cgroup := func(unit float64, f func(u *stats.CgroupUsage) *uint64, extra ...label) func(*text, *subject) {
		return func(t *text, s *subject) {
			if s.cgroup != nil {
				t.number(f(s.cgroup), unit, s.at, s.labels, extra)
			}
		}
	}
	fs := func(f func(f *statsv1alpha1.FsStats) *uint64) func(*text, *subject) {
		return func(t *text, s *subject) {
			if s.fs != nil {
				t.number(f(s.fs), 1, s.fs.Time.Time, s.labels, []label{{"device", ""}})
			}
		}
	}
	pressure := func(of func(s *subject) (*statsv1alpha1.PSIStats, time.Time), full bool) func(*text, *subject) {
		return func(t *text, s *subject) {
			psi, at := of(s)
			if psi == nil {
				return
			}
			total := psi.Some.Total
			if full {
				total = psi.Full.Total
			}
			t.sample(float64(total)/seconds, at, s.labels)
		}
	}
	cpuPSI := func(s *subject) (*statsv1alpha1.PSIStats, time.Time) {
		if s.cpu == nil {
			return nil, s.at
		}
		return s.cpu.PSI, s.cpu.Time.Time
	}
	memoryPSI := func(s *subject) (*statsv1alpha1.PSIStats, time.Time) {
		if s.memory == nil {
			return nil, s.at
		}
		return s.memory.PSI, s.memory.Time.Time
	}
	ioPSI := func(s *subject) (*statsv1alpha1.PSIStats, time.Time) {
		if s.io == nil {
			return nil, s.at
		}
		return s.io.PSI, s.io.Time.Time
	}
	type (
		c = statsv1alpha1.CPUStats
		m = statsv1alpha1.MemoryStats
		n = statsv1alpha1.InterfaceStats
		d = statsv1alpha1.FsStats
		g = stats.CgroupUsage
	)
	return []metric{
		{"container_cpu_usage_seconds_total", counter, "Cumulative cpu time consumed in seconds.", true,
			cpu(func(c *c) *uint64 { return c.UsageCoreNanoSeconds }, label{"cpu", "total"})},
		{"container_cpu_user_seconds_total", counter, "Cumulative user cpu time consumed in seconds.", false,
			cgroup(seconds, func(u *g) *uint64 { return u.UserCPU })},
		{"container_cpu_system_seconds_total", counter, "Cumulative system cpu time consumed in seconds.", false,
			cgroup(seconds, func(u *g) *uint64 { return u.SystemCPU })},
		{"container_cpu_cfs_periods_total", counter, "Number of elapsed enforcement period intervals.", false,
			cgroup(1, func(u *g) *uint64 { return u.Periods })},
		{"container_cpu_cfs_throttled_periods_total", counter, "Number of throttled period intervals.", false,
			cgroup(1, func(u *g) *uint64 { return u.ThrottledPeriods })},
		{"container_cpu_cfs_throttled_seconds_total", counter, "Total time duration the container has been throttled.",
			false, cgroup(seconds, func(u *g) *uint64 { return u.Throttled })},

		{"container_memory_working_set_bytes", gauge, "Current working set in bytes.", true,
			memory(func(m *m) *uint64 { return m.WorkingSetBytes })},
		{"container_memory_usage_bytes", gauge, "Current memory usage in bytes, including all memory regardless of " +
			"when it was accessed", true, memory(func(m *m) *uint64 { return m.UsageBytes })},
		{"container_memory_rss", gauge, "Size of RSS in bytes.", true,
			memory(func(m *m) *uint64 { return m.RSSBytes })},
		{"container_memory_swap", gauge, "Container swap usage in bytes.", true,
			func(t *text, s *subject) { t.swap(s.swap, s.labels) }},
		{"container_memory_cache", gauge, "Number of bytes of page cache memory.", false,
			cgroup(1, func(u *g) *uint64 { return u.Cache })},
		{"container_memory_mapped_file", gauge, "Size of memory mapped files in bytes.", false,
			cgroup(1, func(u *g) *uint64 { return u.MappedFile })},
		{"container_memory_failures_total", counter, "Cumulative count of memory allocation failures.", true,
			func(t *text, s *subject) {
				if s.memory != nil {
					t.number(s.memory.PageFaults, 1, s.memory.Time.Time, s.labels, []label{{"failure_type", "pgfault"},
						{"scope", "hierarchy"}})
					t.number(s.memory.MajorPageFaults, 1, s.memory.Time.Time, s.labels,
						[]label{{"failure_type", "pgmajfault"}, {"scope", "hierarchy"}})
				}
			}},

		{"container_network_receive_bytes_total", counter, "Cumulative count of bytes received", true,
			network(func(i *n) *uint64 { return i.RxBytes })},
		{"container_network_receive_errors_total", counter, "Cumulative count of errors encountered while receiving",
			true, network(func(i *n) *uint64 { return i.RxErrors })},
		{"container_network_transmit_bytes_total", counter, "Cumulative count of bytes transmitted", true,
			network(func(i *n) *uint64 { return i.TxBytes })},
		{"container_network_transmit_errors_total", counter,
			"Cumulative count of errors encountered while transmitting", true,
			network(func(i *n) *uint64 { return i.TxErrors })},

		{"container_fs_usage_bytes", gauge, "Number of bytes that are consumed by the container on this filesystem.",
			false, fs(func(f *d) *uint64 { return f.UsedBytes })},
		{"container_fs_limit_bytes", gauge, "Number of bytes that can be consumed by the container on this filesystem.",
			false, fs(func(f *d) *uint64 { return f.CapacityBytes })},
		{"container_fs_inodes_total", gauge, "Number of Inodes", false, fs(func(f *d) *uint64 { return f.Inodes })},
		{"container_fs_inodes_free", gauge, "Number of available Inodes", false,
			fs(func(f *d) *uint64 { return f.InodesFree })},
		{"container_fs_reads_total", counter, "Cumulative count of reads completed", false,
			cgroup(1, func(u *g) *uint64 { return u.Reads }, label{"device", ""})},
		{"container_fs_writes_total", counter, "Cumulative count of writes completed", false,
			cgroup(1, func(u *g) *uint64 { return u.Writes }, label{"device", ""})},
		{"container_fs_reads_bytes_total", counter, "Cumulative count of bytes read", false,
			cgroup(1, func(u *g) *uint64 { return u.ReadBytes }, label{"device", ""})},
		{"container_fs_writes_bytes_total", counter, "Cumulative count of bytes written", false,
			cgroup(1, func(u *g) *uint64 { return u.WrittenBytes }, label{"device", ""})},

		{"container_pressure_cpu_waiting_seconds_total", counter, "Total time duration tasks in the container have " +
			"waited due to CPU congestion.", true, pressure(cpuPSI, false)},
		{"container_pressure_cpu_stalled_seconds_total", counter, "Total time duration no tasks in the container " +
			"could make progress due to CPU congestion.", true, pressure(cpuPSI, true)},
		{"container_pressure_memory_waiting_seconds_total", counter, "Total time duration tasks in the container " +
			"have waited due to memory congestion.", true, pressure(memoryPSI, false)},
		{"container_pressure_memory_stalled_seconds_total", counter, "Total time duration no tasks in the container " +
			"could make progress due to memory congestion.", true, pressure(memoryPSI, true)},
		{"container_pressure_io_waiting_seconds_total", counter, "Total time duration tasks in the container have " +
			"waited due to IO congestion.", true, pressure(ioPSI, false)},
		{"container_pressure_io_stalled_seconds_total", counter, "Total time duration no tasks in the container " +
			"could make progress due to IO congestion.", true, pressure(ioPSI, true)},

		{"container_processes", gauge, "Number of processes running inside the container.", false,
			func(t *text, s *subject) { t.number(s.tasks, 1, s.at, s.labels) }},
		{"container_start_time_seconds", gauge, "Start time of the container since unix epoch in seconds.", true,
			func(t *text, s *subject) {
				if s.started.Unix() > 0 {
					t.sample(float64(s.started.Unix()), s.at, s.labels)
				}
			}},
		{"container_last_seen", gauge, "Last time a container was seen by the exporter", true,
			func(t *text, s *subject) { t.sample(float64(s.at.Unix()), s.at, s.labels) }},
	}
}

// cadvisorPage encodes /metrics/cadvisor.
type cadvisorPage struct {
	// own are the families from a reading by their names, known the names that a family of a runtime
	// may have. They do not change.
	own   map[string]metric
	known map[string]bool
}

func newCadvisorPage(opts CadvisorOptions) *cadvisorPage {
	p := &cadvisorPage{own: map[string]metric{}, known: map[string]bool{}}
	if events := opts.OOMEvents; events != nil {
		const name = "container_oom_events_total"
		p.own[name] = metric{name, counter, "Count of out of memory events observed for the container", true,
			func(t *text, s *subject) {
				t.sample(float64(events(s.cgroupPath())), s.at, s.labels)
			}}
	}
	for _, m := range metrics() {
		p.own[m.name] = m
	}
	for _, name := range cadvisorNames() {
		p.known["container_"+name] = true
	}
	return p
}

// encode encodes the page, in the order of the names.
func (p *cadvisorPage) encode(r *stats.Reading, families []runtime.MetricFamily) []byte {
	t := &text{buf: make([]byte, 0, 1<<12*(1+2*len(r.Pods)))}
	list, byID := subjects(r)
	type part struct {
		name  string
		write func()
	}
	var parts []part
	ofRuntime := map[string]bool{}
	for i := range families {
		f := &families[i]
		if p.own[f.Name].exact || !p.known[f.Name] || ofRuntime[f.Name] {
			continue
		}
		ofRuntime[f.Name] = true
		parts = append(parts, part{f.Name, func() { writeFamily(t, f, byID) }})
	}
	for _, m := range p.own {
		if !ofRuntime[m.name] {
			parts = append(parts, part{m.name, func() {
				t.family(m.name, m.kind, m.help)
				for i := range list {
					m.write(t, &list[i])
				}
			}})
		}
	}
	for _, m := range machine(r) {
		parts = append(parts, part{m.name, func() {
			t.family(m.name, gauge, m.help)
			t.sample(m.value, time.Time{}, []label{{"boot_id", r.Machine.BootID}, {"machine_id", r.Machine.ID},
				{"system_uuid", r.Machine.SystemUUID}})
		}})
	}
	parts = append(parts, part{"container_scrape_error", func() {
		t.family("container_scrape_error", gauge,
			"1 if there was an error while getting container metrics, 0 otherwise")
		t.sample(failed(r), time.Time{})
	}})
	slices.SortFunc(parts, func(a, b part) int { return cmp.Compare(a.name, b.name) })
	for _, part := range parts {
		part.write()
	}
	return t.buf
}

// machineMetric is a metric of the machine.
type machineMetric struct {
	name, help string
	value      float64
}

func machine(r *stats.Reading) []machineMetric {
	m := &r.Machine
	var out []machineMetric
	if m.Cores > 0 {
		out = append(out, machineMetric{"machine_cpu_cores", "Number of logical CPU cores.", float64(m.Cores)})
	}
	if m.Memory > 0 {
		out = append(out, machineMetric{"machine_memory_bytes", "Amount of memory installed on the machine.",
			float64(m.Memory)},
			machineMetric{"machine_swap_bytes", "Amount of swap memory available on the machine.", float64(m.Swap)})
	}
	return out
}
