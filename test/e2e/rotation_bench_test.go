package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// BenchmarkLogLimit has a container write to its log, at a rate of at most 6 or 100 MB/s or as fast as it can, and
// reports by how much the rotated files exceed the limit of 2 MiB: of the median and the largest file of each run. An
// iteration is a rotation.
//
//	go test -run '^$' -bench LogLimit -benchtime 20x -timeout 30m
func BenchmarkLogLimit(b *testing.B) {
	const limit = 2 << 20
	config := map[string]any{"containerLogMaxSize": "2Mi", "containerLogMaxFiles": 3}
	for _, rt := range []struct {
		name  string
		start func() *Agent
	}{
		{"containerd", func() *Agent { return benchCluster(b).StartAgent(b, AgentOptions{Config: config}) }},
		{"process", func() *Agent { return StartProcessAgent(b, AgentOptions{Config: config}) }},
	} {
		b.Run(rt.name, func(b *testing.B) {
			agent := rt.start()
			for _, w := range []struct{ name, script string }{
				// A chunk each 10 ms, or 2.5 ms.
				{"6MBps", `line=$(head -c 499 /dev/zero | tr '\0' x); chunk=$(for i in $(seq 120); do echo $line; done); while :; do echo "$chunk"; usleep 10000 2>/dev/null || sleep 0.01; done`},
				{"100MBps", `line=$(head -c 4000 /dev/zero | tr "\0" x); chunk=$(for i in $(seq 120); do echo $line; done); while :; do echo "$chunk"; usleep 2500 2>/dev/null || sleep 0.0025; done`},
				{"fast", `line=$(head -c 4000 /dev/zero | tr '\0' x); exec yes $line`},
			} {
				b.Run(w.name, func(b *testing.B) {
					pod := MakePod("writer-"+strings.ToLower(w.name), Main(Sh("main", w.script)))
					agent.Put(b, pod)
					running := agent.Await(b, pod, within, Running)
					defer agent.Remove(b, pod)
					sizes, rate := rotatedSizes(b, filepath.Join(agent.Logs, "default_"+FullName(pod)+"_"+
						string(running.UID), "main"), b.N)
					b.ReportMetric(0, "ns/op")
					b.ReportMetric(rate/1e6, "MB/s")
					b.ReportMetric((median(sizes)-limit)/1e6, "excess-MB")
					b.ReportMetric((percentile(sizes, 100)-limit)/1e6, "excess-MB-max")
				})
			}
		})
	}
}

// rotatedSizes returns the sizes of n rotated files before they are compressed, and how many bytes a second were
// written meanwhile.
func rotatedSizes(b *testing.B, dir string, n int) (sizes []float64, rate float64) {
	b.Helper()
	largest := map[string]int64{}
	begin := time.Now()
	for end := begin.Add(40 * time.Second); len(largest) <= n; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			b.Fatalf("%d files were rotated in 40 s: %v", len(largest), largest)
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			b.Fatal(err)
		}
		for _, e := range entries {
			if !strings.Contains(e.Name(), ".log.") || strings.HasSuffix(e.Name(), ".gz") ||
				strings.HasSuffix(e.Name(), ".tmp") {
				continue
			}
			if info, err := e.Info(); err == nil {
				largest[e.Name()] = max(largest[e.Name()], info.Size())
			}
		}
	}
	total, last := 0.0, ""
	for name := range largest {
		last = max(last, name) // the runtime may still write to it
	}
	for name, size := range largest {
		total += float64(size)
		if name != last {
			sizes = append(sizes, float64(size))
		}
	}
	return sizes, total / time.Since(begin).Seconds()
}
