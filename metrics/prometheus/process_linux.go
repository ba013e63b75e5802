package prommetrics

import (
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeletkit/kubeletkit/metrics/prometheus/internal/collector"
)

// process has the metrics of the process that Prometheus' client library has, which reads
// /proc/stat and parses all of /proc/self/net/netstat and /proc/self/limits each time.
type process struct {
	cpu, fds, maxFDs, virtual, maxVirtual, resident, received, sent *prometheus.Desc
	// start does not change. It is nil if the time is not known.
	start prometheus.Metric
}

// RegisterProcess registers the metrics of the process, which begin with process_, as Prometheus'
// client library has them. What cannot be read is missing.
func RegisterProcess(reg prometheus.Registerer) error {
	desc := func(name, help string) *prometheus.Desc { return prometheus.NewDesc("process_"+name, help, nil, nil) }
	p := &process{
		cpu:        desc("cpu_seconds_total", "Total user and system CPU time spent in seconds."),
		fds:        desc("open_fds", "Number of open file descriptors."),
		maxFDs:     desc("max_fds", "Maximum number of open file descriptors."),
		virtual:    desc("virtual_memory_bytes", "Virtual memory size in bytes."),
		maxVirtual: desc("virtual_memory_max_bytes", "Maximum amount of virtual memory available in bytes."),
		resident:   desc("resident_memory_bytes", "Resident memory size in bytes."),
		received:   desc("network_receive_bytes_total", "Number of bytes received by the process over the network."),
		sent:       desc("network_transmit_bytes_total", "Number of bytes sent by the process over the network."),
	}
	if started, help, ok := startTime(); ok {
		p.start = prometheus.MustNewConstMetric(desc("start_time_seconds", help), prometheus.GaugeValue, started)
	}
	return collector.Register(reg, "process", collector.Group{p})
}

// Describe implements [prometheus.Collector].
func (p *process) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{p.cpu, p.fds, p.maxFDs, p.virtual, p.maxVirtual, p.resident,
		p.received, p.sent} {
		ch <- d
	}
	if p.start != nil {
		ch <- p.start.Desc()
	}
}

// Collect implements [prometheus.Collector].
func (p *process) Collect(ch chan<- prometheus.Metric) {
	add := func(d *prometheus.Desc, kind prometheus.ValueType, value float64) {
		ch <- prometheus.MustNewConstMetric(d, kind, value)
	}
	var used syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &used) == nil {
		add(p.cpu, prometheus.CounterValue, float64(used.Utime.Nano()+used.Stime.Nano())/1e9)
	}
	if n, ok := openFiles(); ok {
		add(p.fds, prometheus.GaugeValue, float64(n))
	}
	for _, l := range []struct {
		desc     *prometheus.Desc
		resource int
	}{{p.maxFDs, syscall.RLIMIT_NOFILE}, {p.maxVirtual, syscall.RLIMIT_AS}} {
		var limit syscall.Rlimit
		if syscall.Getrlimit(l.resource, &limit) == nil {
			add(l.desc, prometheus.GaugeValue, float64(limit.Cur))
		}
	}
	if size, resident, ok := memorySizes(); ok {
		add(p.virtual, prometheus.GaugeValue, size)
		add(p.resident, prometheus.GaugeValue, resident)
	}
	counters := ipCounters()
	if n, ok := counters["InOctets"]; ok {
		add(p.received, prometheus.CounterValue, n)
	}
	if n, ok := counters["OutOctets"]; ok {
		add(p.sent, prometheus.CounterValue, n)
	}
	if p.start != nil {
		ch <- p.start
	}
}

// memorySizes returns the virtual and the resident size of the process in bytes.
func memorySizes() (size, resident float64, ok bool) {
	data, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, 0, false
	}
	fields := strings.Fields(string(data)) // proc_pid_statm(5): size, resident and others, in pages
	if len(fields) < 2 {
		return 0, 0, false
	}
	size, err = strconv.ParseFloat(fields[0], 64)
	resident, rerr := strconv.ParseFloat(fields[1], 64)
	page := float64(os.Getpagesize())
	return size * page, resident * page, err == nil && rerr == nil
}

// ipCounters returns the counters of IpExt of the network namespace of the process, by their names.
func ipCounters() map[string]float64 {
	data, err := os.ReadFile("/proc/self/net/netstat")
	if err != nil {
		return nil
	}
	// proc_pid_net(5): a line with the names, and one with the values.
	const prefix = "\nIpExt:"
	_, text, _ := strings.Cut(string(data), prefix)
	names, text, _ := strings.Cut(text, prefix)
	line, _, _ := strings.Cut(text, "\n")
	values := strings.Fields(line)
	out := map[string]float64{}
	for i, name := range strings.Fields(names) {
		if i >= len(values) {
			break
		}
		if n, err := strconv.ParseFloat(values[i], 64); err == nil {
			out[name] = n
		}
	}
	return out
}

// openFiles returns the number of open files.
func openFiles() (n int64, ok bool) {
	const path = "/proc/self/fd"
	// Since Linux 6.2 it is the size of the directory.
	if info, err := os.Stat(path); err == nil && info.Size() > 0 {
		return info.Size(), true
	}
	dir, err := os.Open(path)
	if err != nil {
		return 0, false
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	return int64(len(names)) - 1, err == nil // without the directory
}
