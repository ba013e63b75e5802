package prommetrics

import (
	"bytes"
	"os"
	"strconv"
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
	for _, d := range []*prometheus.Desc{p.cpu, p.fds, p.maxFDs, p.virtual, p.maxVirtual, p.resident, p.received, p.sent} {
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
	number := func(d *prometheus.Desc, kind prometheus.ValueType, text []byte, unit float64) {
		if n, err := strconv.ParseUint(string(text), 10, 64); err == nil {
			add(d, kind, float64(n)*unit)
		}
	}
	// proc_pid_statm(5): size, resident and others, in pages.
	if data, err := os.ReadFile("/proc/self/statm"); err == nil {
		if f := bytes.Fields(data); len(f) > 1 {
			number(p.virtual, prometheus.GaugeValue, f[0], float64(os.Getpagesize()))
			number(p.resident, prometheus.GaugeValue, f[1], float64(os.Getpagesize()))
		}
	}
	// proc_pid_net(5): a line with the names of the counters of IpExt, and one with their values.
	if data, err := os.ReadFile("/proc/self/net/netstat"); err == nil {
		_, data, _ = bytes.Cut(data, []byte("\nIpExt:"))
		names, data, _ := bytes.Cut(data, []byte("\nIpExt:"))
		line, _, _ := bytes.Cut(data, []byte("\n"))
		values := bytes.Fields(line)
		for i, name := range bytes.Fields(names) {
			switch {
			case i >= len(values):
			case string(name) == "InOctets":
				number(p.received, prometheus.CounterValue, values[i], 1)
			case string(name) == "OutOctets":
				number(p.sent, prometheus.CounterValue, values[i], 1)
			}
		}
	}
	if p.start != nil {
		ch <- p.start
	}
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
