package stats

import (
	"time"

	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// rates computes rates of CPU usage, for which it keeps the last two samples of each container,
// sandbox and of the node by ID. It belongs to one reading at a time.
type rates map[string]*sample

// sample is the CPU time of something in nanoseconds.
type sample struct {
	at   time.Time
	cpu  uint64
	seen bool
}

// minSample is the shortest time that a rate is computed over.
const minSample = 100 * time.Millisecond

// begin begins a reading. Without end, nothing is forgotten.
func (r rates) begin() {
	for _, s := range r {
		s.seen = false
	}
}

// end ends a reading. It forgets the samples of all IDs for which of was not called since begin.
func (r rates) end() {
	for id, s := range r {
		if !s.seen {
			delete(r, id)
		}
	}
}

// of adds the rate since the last reading to a usage that has none. A counter that went back
// was set back with its cgroup, so there is no rate.
func (r rates) of(id string, c *statsv1alpha1.CPUStats) {
	if c == nil || c.UsageCoreNanoSeconds == nil {
		return
	}
	last, at, cpu := r[id], c.Time.Time, *c.UsageCoreNanoSeconds
	if last == nil {
		r[id] = &sample{at: at, cpu: cpu, seen: true}
		return
	}
	took := at.Sub(last.at)
	last.seen = true
	if cpu >= last.cpu && took >= minSample && c.UsageNanoCores == nil {
		rate := uint64(float64(cpu-last.cpu) / took.Seconds())
		c.UsageNanoCores = amount(&rate)
	}
	if took >= minSample || cpu < last.cpu || took < 0 {
		last.at, last.cpu = at, cpu
	}
}
