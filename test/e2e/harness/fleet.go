package harness

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// Fleet is a process with many nodes of a [ControlPlane].
type Fleet struct {
	process *process
	log     string
}

// NewFleet starts examples/hollow with so many nodes, which ends with the test. It reports when so many pods
// run on each, on average.
func (p *ControlPlane) NewFleet(t testing.TB, nodes, pods int) *Fleet {
	t.Helper()
	f := &Fleet{log: p.path("hollow.log")}
	_ = os.Remove(f.log)
	f.process = p.start(t, "hollow", HollowBinary(t), "-agents", strconv.Itoa(nodes), "-pods", strconv.Itoa(pods),
		"-kubeconfig", p.admin, "-stay", "1h", "-heap-profile", p.path("hollow.heap"))
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the fleet's last words:\n%s", tail(f.log, 10))
		}
		if err := f.process.stop(syscall.SIGTERM, 30*time.Second); err != nil {
			t.Log(err)
		}
	})
	return f
}

// Exited reports whether the fleet has ended.
func (f *Fleet) Exited() bool { return f.process.exited() }

// Said returns the groups of the last match in what the fleet has printed; nil if there is none.
func (f *Fleet) Said(expr *regexp.Regexp) []string {
	data, err := os.ReadFile(f.log)
	if err != nil {
		return nil
	}
	all := expr.FindAllStringSubmatch(string(data), -1)
	if len(all) == 0 {
		return nil
	}
	return all[len(all)-1]
}

// Costs returns what the fleet and the programs of the control plane have used, by their names.
func (p *ControlPlane) Costs(t testing.TB, f *Fleet) map[string]Cost {
	t.Helper()
	costs := map[string]Cost{"hollow": costOf(t, f.process)}
	for _, process := range append([]*process{p.api, p.etcd}, p.others...) {
		costs[filepath.Base(process.cmd.Path)] = costOf(t, process)
	}
	return costs
}

// CPU returns the CPU time of all programs of the control plane.
func (p *ControlPlane) CPU(t testing.TB) (sum time.Duration) {
	t.Helper()
	for _, process := range append([]*process{p.api, p.etcd}, p.others...) {
		sum += costOf(t, process).CPU
	}
	return sum
}
