package kubelet

import (
	goruntime "runtime"
	"slices"
	"testing"
	"time"
)

// BenchmarkCapabilities starts kubelets without pods on runtimes in memory: with no capability, with each alone, and
// with all. It prints what one has more than with none: live objects and goroutines. Cluster and Server have no
// settings here that use them.
func BenchmarkCapabilities(b *testing.B) {
	var all []Capability
	for _, c := range capabilities {
		all = append(all, c.name)
	}
	measure := func(b *testing.B, only ...Capability) (bytes, goroutines float64) {
		const kubelets = 5
		bytes, goroutines = inUse()
		var stops []func()
		for range kubelets {
			e := newEmbedder(b)
			e.opts.Without = slices.DeleteFunc(slices.Clone(all), func(c Capability) bool {
				return slices.Contains(only, c)
			})
			_, stop := e.start()
			stops = append(stops, stop)
		}
		time.Sleep(time.Second)
		bytesAfter, goroutinesAfter := inUse()
		for _, stop := range stops {
			stop()
		}
		return (bytesAfter - bytes) / kubelets, (goroutinesAfter - goroutines) / kubelets
	}
	measure(b) // what is made once
	noneBytes, noneGoroutines := measure(b)
	run := func(name string, only ...Capability) {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				bytes, goroutines := measure(b, only...)
				b.ReportMetric((bytes-noneBytes)/1000, "kB")
				b.ReportMetric(goroutines-noneGoroutines, "goroutines")
			}
			b.ReportMetric(0, "ns/op")
		})
	}
	for _, c := range all {
		run(string(c), c)
	}
	run("all", all...)
	b.Logf("with none: %.0f kB, %.0f goroutines", noneBytes/1000, noneGoroutines)
}

// inUse returns the bytes of live objects, and the number of goroutines.
func inUse() (bytes, goroutines float64) {
	goruntime.GC()
	goruntime.GC()
	var m goruntime.MemStats
	goruntime.ReadMemStats(&m)
	return float64(m.HeapAlloc), float64(goruntime.NumGoroutine())
}
