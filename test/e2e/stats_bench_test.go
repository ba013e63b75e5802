package e2e

import (
	"fmt"
	"sync"
	"testing"
	"time"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// scrapedPage is a page that monitoring reads of a node.
type scrapedPage struct {
	name, path string
	// times is how often it is read, and every the time between two reads.
	times int
	every time.Duration
}

// scrapedPages returns the pages. What the agent has read for one of the last two, others share for
// 5 s, so that these are read less often: each of their reads is one of the usage of all pods.
func scrapedPages() []scrapedPage {
	return []scrapedPage{
		{"metrics", "/metrics", 15, time.Second},
		{"resource", "/metrics/resource", 4, 6 * time.Second},
		{"summary", "/stats/summary", 4, 6 * time.Second},
	}
}

// BenchmarkScrape reads the pages of n pods to which nothing happens, one after the other.
//
//   - "idle-cpu-ms/s" is the CPU time of the agent in a second without a reader, and
//     "idle-runtime-cpu-ms/s" that of containerd with its shims.
//   - "metrics-cpu-ms", "resource-cpu-ms" and "summary-cpu-ms" are the CPU time of the agent for
//     an answer, beyond that, and "…-runtime-cpu-ms" that of the runtime.
//   - "…-p50-ms" and "…-max-ms" are how long an answer takes, and "…-kB" is its size.
//   - "all-cpu-ms/s" is all that the agent uses in a second in which the three pages are read, and
//     "all-runtime-cpu-ms/s" is the same of the runtime.
//
// A page that an agent answers with an error is left out.
//
// KUBELET_BIN=… KUBELETKIT_E2E_PODS=100 go test -run '^$' -bench Scrape -benchtime 1x -timeout 60m
func BenchmarkScrape(b *testing.B) {
	forEachSize(b, "100", benchmarkScrape)
}

func benchmarkScrape(b *testing.B, n int) {
	list := contestants(b, minikubelet, baseline, kubelet)
	for i := range list {
		if list[i].name == kubelet {
			// Its default. Without it, its cAdvisor does not read file systems, and /stats/summary has status 500.
			list[i].options.Config = map[string]any{"localStorageCapacityIsolation": true}
		}
	}
	c := benchCluster(b)
	took := samples{}
	takeTurns(b, list, func(who contestant) {
		agent, _ := crowd(b, c, who.options, n)
		time.Sleep(15 * time.Second) // what follows the starts is over
		add := func(unit string, v float64) { took.add(who.name, unit, v) }
		cost := func(f func()) (agentMS, runtimeMS float64) {
			own, others := agent.ThreadCPU(b), c.CPU(b)
			f()
			return float64((agent.ThreadCPU(b) - own).Microseconds()) / 1000,
				float64((c.CPU(b) - others).Microseconds()) / 1000
		}
		const quiet = 20 // seconds
		idle, idleRuntime := cost(func() { time.Sleep(quiet * time.Second) })
		idle, idleRuntime = idle/quiet, idleRuntime/quiet
		add("idle-cpu-ms/s", idle)
		add("idle-runtime-cpu-ms/s", idleRuntime)
		for _, p := range scrapedPages() {
			// The first one makes what others share.
			if _, err := agent.Get(p.path); err != nil {
				b.Logf("%s has no %s: %v", who.name, p.path, err)
				continue
			}
			time.Sleep(p.every)
			var ms []float64
			var size int
			own, others := cost(func() {
				for range p.times {
					began := time.Now()
					size = scrape(b, agent, p.path)
					ms = append(ms, float64(time.Since(began).Microseconds())/1000)
					time.Sleep(time.Until(began.Add(p.every)))
				}
			})
			add(p.name+"-cpu-ms", own/float64(p.times)-idle*p.every.Seconds())
			add(p.name+"-runtime-cpu-ms", others/float64(p.times)-idleRuntime*p.every.Seconds())
			add(p.name+"-p50-ms", percentile(ms, 50))
			add(p.name+"-max-ms", percentile(ms, 100))
			add(p.name+"-kB", float64(size)/1000)
		}
		const busy = 15 // seconds
		own, others := cost(func() {
			for range busy {
				began := time.Now()
				for _, p := range scrapedPages() {
					_, _ = agent.Get(p.path)
				}
				time.Sleep(time.Until(began.Add(time.Second)))
			}
		})
		add("all-cpu-ms/s", own/busy)
		add("all-runtime-cpu-ms/s", others/busy)
		disband(b, c, agent)
	})
	took.report(b, list, "all-cpu-ms/s", kubelet, nil)
}

// scrape reads a page and returns its size.
func scrape(b *testing.B, agent *Agent, path string) int {
	b.Helper()
	body, err := agent.Get(path)
	if err != nil {
		b.Fatal(fmt.Errorf("%s: %w", path, err))
	}
	return len(body)
}

// BenchmarkStartWhileScraped starts n pods on an agent without readers, and on an agent of which all
// pages are read each second. "again" is another agent without readers: its ratio is the noise.
// "cpu-s" and the others are those of BenchmarkColdStart.
//
// KUBELETKIT_E2E_PODS=100 go test -run '^$' -bench StartWhileScraped -benchtime 3x -timeout 60m
func BenchmarkStartWhileScraped(b *testing.B) {
	forEachSize(b, "100", func(b *testing.B, n int) {
		const scraped, again = "scraped", "again"
		own := contestants(b, minikubelet)[0]
		list := []contestant{own, {scraped, own.options}, {again, own.options}}
		c := benchCluster(b)
		rounds, took := 0, samples{}
		takeTurns(b, list, func(who contestant) {
			rounds++
			pods := benchPods(fmt.Sprintf("scraped-%d", rounds), n)
			agent := launch(b, c, who.options, n)
			start := stageStart(b, agent, pods)
			stop := func() {}
			if who.name == scraped {
				stop = scrapeAll(agent)
			}
			cost := agent.Cost(b).CPU
			measureStart(b, c, func(unit string, v float64) { took.add(who.name, unit, v) }, start)
			took.add(who.name, "cpu-s", (agent.Cost(b).CPU - cost).Seconds())
			stop()
			disband(b, c, agent)
		})
		took.report(b, list, "s", minikubelet, nil)
	})
}

// scrapeAll reads all pages each second until stop is called.
func scrapeAll(agent *Agent) (stop func()) {
	end := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			for _, path := range []string{"/metrics", "/metrics/resource", "/metrics/cadvisor", "/metrics/probes",
				"/stats/summary"} {
				_, _ = agent.Get(path)
			}
			select {
			case <-end:
				return
			case <-tick.C:
			}
		}
	})
	return func() { close(end); done.Wait() }
}
