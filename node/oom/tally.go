package oom

// maxTallies is the number of cgroups of which the kills are counted. The oldest ones are dropped.
const maxTallies = 1024

// tallies count kills by the cgroups whose limits were reached.
type tallies struct {
	byCgroup map[string]uint64
	order    []string // the cgroups, the oldest first
}

func (t *tallies) add(cgroup string, n int) {
	if t.byCgroup == nil {
		t.byCgroup = map[string]uint64{}
	}
	if _, known := t.byCgroup[cgroup]; !known {
		if len(t.order) == maxTallies {
			delete(t.byCgroup, t.order[0])
			t.order = append(t.order[:0], t.order[1:]...)
		}
		t.order = append(t.order, cgroup)
	}
	t.byCgroup[cgroup] += uint64(n)
}

// tally counts a kill. w.mu is held.
func (w *Watcher) tally(k Kill) {
	switch {
	case k.Group: // it is one with that of another process
	case k.Global:
		w.tallies.add("/", 1)
	case k.Limit != "":
		w.tallies.add(k.Limit, max(1, k.Counted))
	case k.Counted > 0: // which limit was reached is not known
		w.tallies.add(k.Cgroup, k.Counted)
	}
}

// Events returns how often the kernel has killed a process because the limit of the cgroup was reached, since the
// watcher runs; of "/", because the machine was out of memory. It is cAdvisor's container_oom_events_total. Of more
// than 1024 cgroups with kills, those with the newest first kills count.
func (w *Watcher) Events(cgroup string) uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.tallies.byCgroup[cgroup]
}
