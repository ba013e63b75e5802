package e2e

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// The benchmarks compare contestants, by turns in one run, for one number of pods or
// for several. They print one line for each number and contestant:
//
//	BenchmarkColdStart/pods=100/agent-2   3   1.04 ratio   7.41 s   7.65 s-max   7.38 s-min
//
// "ratio" compares a contestant with the bare client, by their medians. The command
// ./bench runs them and keeps a line for each round. These environment variables hold for all of them:
//
//   - KUBELETKIT_E2E_RESULTS is a file. The values of each round are appended to it as lines of the same format.
//   - KUBELETKIT_E2E_PODS is the numbers of pods, as in "10,50,100".
//   - KUBELETKIT_E2E_AGENT is the agent, by default built from this tree.
//   - KUBELETKIT_E2E_AGENT_ARGS are more flags for it.
//   - KUBELETKIT_E2E_BASELINE is another minikubelet to compare with, say of an older commit.
//   - KUBELET_BIN is a kubelet to compare with.
//   - KUBELETKIT_E2E_CONTESTANTS selects contestants, as in "bare,agent"; all by default.

// The names of the contestants.
const (
	bareClient     = "bare"      // a client that only makes the CRI calls that it takes
	minikubelet    = "agent"     // minikubelet
	relisting      = "generic"   // minikubelet without events: it only relists
	withoutCgroups = "nocgroups" // minikubelet with cgroupsPerQOS: false
	baseline       = "baseline"  // KUBELETKIT_E2E_BASELINE
	kubelet        = "kubelet"   // KUBELET_BIN
	onlyStops      = "stops"     // the bare client, which stops containers and nothing else
	offline        = "offline"   // minikubelet with pods of an API server that is away
	forkExec       = "forkexec"  // fork and exec, in place of the bare client where there is no runtime
)

// contestant is what a benchmark measures: an agent, or something bare that has no
// options.
type contestant struct {
	name    string
	options AgentOptions
}

// contestants returns those of the named contestants that are there and selected.
func contestants(b *testing.B, names ...string) []contestant {
	b.Helper()
	args := strings.Fields(os.Getenv("KUBELETKIT_E2E_AGENT_ARGS"))
	old := os.Getenv("KUBELETKIT_E2E_BASELINE")
	help, _ := exec.Command(cmp.Or(old, "true"), "run", "--help").Output() // "" of a version without commands
	options := map[string]AgentOptions{
		minikubelet:    {Args: args},
		offline:        {Args: args},
		relisting:      {Config: map[string]any{"featureGates": map[string]any{"EventedPLEG": false}}},
		withoutCgroups: {Config: map[string]any{"cgroupsPerQOS": false}},
		baseline:       {Binary: old, Current: strings.Contains(string(help), DevicePluginsDirFlag)},
		kubelet:        {Binary: os.Getenv("KUBELET_BIN")},
	}
	selected := names
	if text := os.Getenv("KUBELETKIT_E2E_CONTESTANTS"); text != "" {
		selected = strings.Split(text, ",")
	}
	var list []contestant
	for _, name := range names {
		missing := (name == baseline || name == kubelet) && options[name].Binary == ""
		if slices.Contains(selected, name) && !missing {
			list = append(list, contestant{name, options[name]})
		}
	}
	if len(list) == 0 {
		b.Skipf("KUBELETKIT_E2E_CONTESTANTS selects none of %v", names)
	}
	return list
}

// idlePeriod returns for how long an agent is measured while idle.
func idlePeriod(b *testing.B, byDefault string) time.Duration {
	b.Helper()
	period, err := time.ParseDuration(cmp.Or(os.Getenv("KUBELETKIT_E2E_IDLE"), byDefault))
	if err != nil {
		b.Fatalf("KUBELETKIT_E2E_IDLE: %v", err)
	}
	return period
}

// forEachSize runs the benchmark for each number of pods in KUBELETKIT_E2E_PODS.
func forEachSize(b *testing.B, byDefault string, run func(b *testing.B, n int)) {
	for field := range strings.SplitSeq(cmp.Or(os.Getenv("KUBELETKIT_E2E_PODS"), byDefault), ",") {
		n, err := strconv.Atoi(field)
		if err != nil || n < 1 {
			b.Fatalf("KUBELETKIT_E2E_PODS: %q is no number of pods", field)
		}
		b.Run(fmt.Sprintf("pods=%d", n), func(b *testing.B) { run(b, n) })
	}
}

// takeTurns measures each contestant once in a round of the benchmark. Each round
// begins with another contestant.
func takeTurns(b *testing.B, list []contestant, measure func(contestant)) {
	for round := 0; b.Loop(); round++ {
		for i := range list {
			measure(list[(round+i)%len(list)])
		}
	}
}

// samples are what was measured of each contestant, by its name and the unit.
type samples map[string]map[string][]float64

func (s samples) add(name, unit string, values ...float64) {
	if s[name] == nil {
		s[name] = map[string][]float64{}
	}
	s[name][unit] = append(s[name][unit], values...)
}

// report prints a line for each contestant: the median of each unit, the metrics that more returns, and by the given
// unit the least and the greatest round and the ratio to the contestant named reference. The contestants have taken
// turns in b, so what prints their lines measures nothing.
func (s samples) report(b *testing.B, list []contestant, unit, reference string,
	more func(name string) map[string]float64) {
	if err := s.writeRounds(b, list); err != nil {
		b.Fatal(err)
	}
	for _, who := range list {
		metrics := map[string]float64{"ns/op": 0} // 0 is not printed: the rounds with their cleaning up mean nothing
		for unit, values := range s[who.name] {
			metrics[unit] = median(values)
		}
		if ours, theirs := s[who.name][unit], s[reference][unit]; who.name != reference && len(ours)*len(theirs) > 0 {
			metrics["ratio"] = ratio(b, ours, theirs)
		}
		if rounds := s[who.name][unit]; len(rounds) == b.N {
			metrics[unit+"-min"], metrics[unit+"-max"] = slices.Min(rounds), slices.Max(rounds)
		}
		if more != nil {
			maps.Copy(metrics, more(who.name))
		}
		b.Run(who.name, func(b *testing.B) {
			for unit, value := range metrics {
				b.ReportMetric(value, unit)
			}
		})
	}
}

// writeRounds appends a line for each round and contestant to the file KUBELETKIT_E2E_RESULTS, if set. Of several
// values in a round it has the median and the 99th percentile, with "-p99" behind the unit. A unit with no value in
// some round, such as that of a rare request, is left out.
func (s samples) writeRounds(b *testing.B, list []contestant) error {
	path := os.Getenv("KUBELETKIT_E2E_RESULTS")
	if path == "" {
		return nil
	}
	var lines strings.Builder
	for round := range b.N {
		for _, who := range list {
			fmt.Fprintf(&lines, "%s/%s 1", b.Name(), who.name)
			for _, unit := range slices.Sorted(maps.Keys(s[who.name])) {
				values := s[who.name][unit]
				each := len(values) / b.N
				if each*b.N != len(values) {
					continue
				}
				values = values[round*each : (round+1)*each]
				fmt.Fprintf(&lines, " %.6g %s", median(values), unit)
				if each > 1 {
					fmt.Fprintf(&lines, " %.6g %s-p99", percentile(values, 99), unit)
				}
			}
			lines.WriteString("\n")
		}
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	_, err = file.WriteString(lines.String())
	return errors.Join(err, file.Close())
}

// ratio returns the ratio of ours to theirs: with one value for each round, the median of the ratios in
// the rounds, as a machine that others use changes its speed from round to round; else the ratio of the
// medians.
func ratio(b *testing.B, ours, theirs []float64) float64 {
	if len(ours) != b.N || len(theirs) != b.N {
		return median(ours) / median(theirs)
	}
	rounds := make([]float64, b.N)
	for i := range rounds {
		rounds[i] = ours[i] / theirs[i]
	}
	return median(rounds)
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	if n := len(sorted); n%2 == 0 {
		return (sorted[n/2-1] + sorted[n/2]) / 2
	}
	return sorted[len(sorted)/2]
}

// percentile is the smallest value that at least p percent are not above.
func percentile(values []float64, p float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[max(0, int(math.Ceil(p/100*float64(len(sorted))))-1)]
}

// benchCluster starts a cluster that has the images of the benchmarks' pods.
func benchCluster(b *testing.B) *Cluster {
	b.Helper()
	c := NewCluster(b)
	c.Preload(b, "pause:1", "busybox:1")
	return c
}

// benchPods makes n pods that run forever, unless spec says otherwise.
func benchPods(name string, n int, spec ...Option) []*v1.Pod {
	pods := make([]*v1.Pod, n)
	for i := range pods {
		pods[i] = MakePod(fmt.Sprintf("%s-%d", name, i), append([]Option{Grace(0), Main(Sh("c", Forever))}, spec...)...)
	}
	return pods
}

// launch starts an agent that has a directory of its own, room for n pods, and logs as
// little as by default.
func launch(b *testing.B, c *Cluster, options AgentOptions, n int) *Agent {
	b.Helper()
	dir, err := os.MkdirTemp(c.Dir, "agent")
	if err != nil {
		b.Fatal(err)
	}
	options.Dir = dir
	options.Args = slices.Concat([]string{"-v", "0"}, options.Args)
	config := map[string]any{"maxPods": max(n, 110)}
	maps.Copy(config, options.Config)
	options.Config = config
	return c.StartAgent(b, options)
}

// crowd starts an agent and n pods that run forever, and waits until all do.
func crowd(b *testing.B, c *Cluster, options AgentOptions, n int, spec ...Option) (*Agent, []*v1.Pod) {
	b.Helper()
	agent, pods := launch(b, c, options, n), benchPods("pod", n, spec...)
	agent.Put(b, pods...)
	awaitRunning(b, agent, n)
	return agent, pods
}

// disband removes the agent with its files, and all pods.
func disband(b *testing.B, c *Cluster, agent *Agent) {
	b.Helper()
	if !agent.Exited() {
		agent.Stop(b)
	}
	if err := c.RemoveAll(); err != nil {
		b.Fatal(err)
	}
	for _, dir := range []string{agent.Manifests, agent.Logs, filepath.Join(agent.Root, "pods")} {
		if err := os.RemoveAll(dir); err != nil {
			b.Fatal(err)
		}
	}
}

// awaitRunning waits until n pods are reported Running. A list of all pods costs the
// agent and the benchmark more than a start may be disturbed by, so awaitRunning reads
// the number of running containers from the metrics until there are n. It reads again after
// half of the time that the rest will take by the pace until now; and while none runs,
// after half of the time that has passed, with few pods after an eighth. A read takes 2 ms of
// the agent's CPU time: with an eighth for all, a tenth of what it used for a start of 100 pods
// was for the reads.
func awaitRunning(b *testing.B, agent *Agent, n int) {
	b.Helper()
	const soonest, latest = 10 * time.Millisecond, time.Second
	for began := time.Now(); ; {
		running, err := agent.RunningContainers()
		if err == nil && running >= n {
			if running, err = runningPods(agent); running >= n {
				return
			}
		}
		took := time.Since(began)
		if took > 10*time.Minute {
			b.Fatalf("%d of %d run after %v: %v", running, n, took, err)
		}
		pause := took / time.Duration(max(2, 80/n))
		if running > 0 {
			pause = took * time.Duration(n-running) / time.Duration(2*running)
		}
		time.Sleep(min(max(pause, soonest), latest))
	}
}

// runningPods returns how many pods are reported Running.
func runningPods(agent *Agent) (int, error) {
	list, err := agent.Pods()
	if err != nil {
		return 0, err
	}
	running := 0
	for i := range list.Items {
		if Running(&list.Items[i]) == nil {
			running++
		}
	}
	return running, nil
}

// awaitQuiet waits until the agent has nothing to do: a new subscriber of a runtime's
// events receives those of the last minutes first, and the agent inspects their pods.
func awaitQuiet(b *testing.B, agent *Agent) {
	b.Helper()
	const look = 500 * time.Millisecond
	for last, began := agent.Cost(b).CPU, time.Now(); ; {
		time.Sleep(look)
		now := agent.Cost(b).CPU
		if now-last <= look/50 {
			return
		}
		if time.Since(began) > time.Minute {
			b.Fatal("the agent has been busy for a minute")
		}
		last = now
	}
}
