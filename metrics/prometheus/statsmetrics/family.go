package statsmetrics

import (
	"strings"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// cadvisorNames returns the metrics of containers that cAdvisor has (metrics/prometheus.go at
// 0.56), without the prefix "container_".
func cadvisorNames() []string {
	return strings.Fields(`
		blkio_device_usage_total cpu_cfs_burst_periods_total cpu_cfs_burst_seconds_total cpu_cfs_periods_total cpu_cfs_throttled_periods_total
		cpu_cfs_throttled_seconds_total cpu_load_average_10s cpu_load_d_average_10s cpu_schedstat_run_periods_total cpu_schedstat_run_seconds_total
		cpu_schedstat_runqueue_seconds_total cpu_system_seconds_total cpu_usage_seconds_total cpu_user_seconds_total file_descriptors fs_inodes_free
		fs_inodes_total fs_io_cost_indebt_seconds_total fs_io_cost_indelay_seconds_total fs_io_cost_usage_seconds_total fs_io_cost_wait_seconds_total
		fs_io_current fs_io_time_seconds_total fs_io_time_weighted_seconds_total fs_limit_bytes fs_read_seconds_total fs_reads_bytes_total
		fs_reads_merged_total fs_reads_total fs_sector_reads_total fs_sector_writes_total fs_usage_bytes fs_write_seconds_total fs_writes_bytes_total
		fs_writes_merged_total fs_writes_total health_state hugetlb_failcnt hugetlb_max_usage_bytes hugetlb_usage_bytes last_seen llc_occupancy_bytes
		memory_bandwidth_bytes memory_bandwidth_local_bytes memory_cache memory_failcnt memory_failures_total memory_kernel_usage memory_mapped_file
		memory_max_usage_bytes memory_migrate memory_numa_pages memory_rss memory_swap memory_total_active_file_bytes memory_total_inactive_file_bytes
		memory_usage_bytes memory_working_set_bytes network_advance_tcp_stats_total network_receive_bytes_total network_receive_errors_total
		network_receive_packets_dropped_total network_receive_packets_total network_tcp6_usage_total network_tcp_usage_total network_transmit_bytes_total
		network_transmit_errors_total network_transmit_packets_dropped_total network_transmit_packets_total network_udp6_usage_total network_udp_usage_total
		oom_events_total perf_events_scaling_ratio perf_events_total perf_uncore_events_scaling_ratio perf_uncore_events_total
		pressure_cpu_stalled_seconds_total pressure_cpu_waiting_seconds_total pressure_io_stalled_seconds_total pressure_io_waiting_seconds_total
		pressure_memory_stalled_seconds_total pressure_memory_waiting_seconds_total processes referenced_bytes sockets spec_cpu_period spec_cpu_quota
		spec_cpu_shares spec_memory_limit_bytes spec_memory_reservation_limit_bytes spec_memory_swap_limit_bytes start_time_seconds tasks_state threads
		threads_max ulimits_soft
	`)
}

// writeFamily writes a family of a runtime. A sample is about the container or sandbox of its
// ID: byID has the labels that identify it, and those of the runtime are replaced. Samples of
// unknown IDs are left out. Of samples with the same labels, only the first one is written.
func writeFamily(t *text, f *runtime.MetricFamily, byID map[string][]label) {
	kind := gauge
	if f.Counter {
		kind = counter
	}
	t.family(f.Name, kind, f.Help)
	seen := map[string]struct{}{}
	var labels []label
	var key []byte
	for i := range f.Samples {
		s := &f.Samples[i]
		id := s.ContainerID
		if id == "" {
			id = s.SandboxID
		}
		of, ok := byID[id]
		if !ok {
			continue
		}
		labels, key = labels[:0], append(key[:0], id...)
		for j, name := range f.Labels {
			if !identifies(name) {
				labels = append(labels, label{name, s.LabelValues[j]})
				key = append(append(key, 0), s.LabelValues[j]...)
			}
		}
		if _, twice := seen[string(key)]; !twice {
			seen[string(key)] = struct{}{}
			t.sample(s.Value, s.Time, of, labels)
		}
	}
}

// identifies reports whether a label identifies the pod or container of a series.
func identifies(label string) bool {
	switch label {
	case "container", "id", "image", "name", "namespace", "pod":
		return true
	}
	return false
}
