package podconfig

import (
	"context"
	"fmt"
	goruntime "runtime"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"
)

// manyPods are pods of common size.
func manyPods(b *testing.B, n int) []*v1.Pod {
	b.Helper()
	var loaded v1.Pod
	if err := yaml.Unmarshal([]byte(commonManifest), &loaded); err != nil {
		b.Fatal(err)
	}
	pods := make([]*v1.Pod, n)
	for i := range pods {
		pods[i] = loaded.DeepCopy()
		pods[i].Name, pods[i].UID = fmt.Sprint("pod-", i), types.UID(fmt.Sprint("uid-", i))
	}
	return pods
}

// commonManifest has the defaults, and what a source of manifests adds.
const commonManifest = `apiVersion: v1
kind: Pod
metadata:
  name: web-node
  namespace: default
  annotations: {kubernetes.io/config.hash: 0123456789abcdef0123456789abcdef, kubernetes.io/config.source: file}
spec:
  nodeName: node
  restartPolicy: Always
  dnsPolicy: ClusterFirst
  schedulerName: default-scheduler
  enableServiceLinks: true
  terminationGracePeriodSeconds: 30
  securityContext: {}
  tolerations: [{operator: Exists, effect: NoExecute}]
  containers:
  - name: main
    image: busybox
    imagePullPolicy: Always
    terminationMessagePath: /dev/termination-log
    terminationMessagePolicy: File
    ports: [{containerPort: 80, protocol: TCP}]
    resources: {limits: {cpu: 1, memory: 1Gi}, requests: {cpu: 1, memory: 1Gi}}
    livenessProbe: {httpGet: {path: /, port: 80, scheme: HTTP}, timeoutSeconds: 1, periodSeconds: 10, successThreshold: 1, failureThreshold: 3}
    env: [{name: A, value: b}, {name: C, value: d}]
    volumeMounts: [{name: e, mountPath: /e}]
  volumes: [{name: e, emptyDir: {}}]
`

// BenchmarkFewOfMany delivers changes of some pods of a source that has 5000, beside
// another source, and has the reader receive them.
func BenchmarkFewOfMany(b *testing.B) {
	const n = 5000
	// prepare puts the changed pods at their positions in pods, and returns how the
	// source delivers them. Only the latter is measured.
	run := func(name string, count, changes int,
		prepare func(pods []*v1.Pod, changed map[int]*v1.Pod) (deliver func(Sink))) {
		b.Run(fmt.Sprintf("%s, %d", name, count), func(b *testing.B) {
			pods := manyPods(b, n)
			m, err := New(Options{Sources: []Source{NewStatic("api"), NewStatic("file")}})
			if err != nil {
				b.Fatal(err)
			}
			api := &sink{mux: m, registration: m.merger.sources[0]}
			api.Set(slices.Clone(pods))
			(&sink{mux: m, registration: m.merger.sources[1]}).Set(manyPods(b, 1))
			receive(b, m, 2)
			b.ReportAllocs()
			for round := 0; b.Loop(); round++ {
				b.StopTimer()
				changed := map[int]*v1.Pod{}
				for k := range count {
					at := (round + k*7) % n
					changed[at] = pods[at].DeepCopy()
					changed[at].Spec.Containers[0].Image = fmt.Sprint("image:", round)
				}
				deliver := prepare(pods, changed)
				b.StartTimer()
				deliver(api)
				receive(b, m, changes)
			}
		})
	}
	same := func(pods []*v1.Pod, changed map[int]*v1.Pod) func(Sink) {
		for at, pod := range changed {
			pods[at] = pod
		}
		snapshot := slices.Clone(pods)
		return func(s Sink) { s.Set(snapshot) }
	}
	run("snapshot of the same pods", 0, 0, same)
	run("snapshot of the same pods", 1, 1, same)
	run("snapshot of the same pods", 100, 1, same)
	run("snapshot of copies", 1, 1, func(pods []*v1.Pod, changed map[int]*v1.Pod) func(Sink) {
		for i, pod := range pods {
			pods[i] = pod.DeepCopy()
		}
		return same(pods, changed)
	})
	run("another at the end", 1, 2, func(pods []*v1.Pod, changed map[int]*v1.Pod) func(Sink) {
		for _, pod := range changed {
			pod.UID += "'"
			pod.Name += "x"
			copy(pods, pods[1:])
			pods[n-1] = pod
		}
		snapshot := slices.Clone(pods)
		return func(s Sink) { s.Set(snapshot) }
	})
	deltas := func(pods []*v1.Pod, changed map[int]*v1.Pod) func(Sink) {
		same(pods, changed)
		return func(s Sink) {
			for _, pod := range changed {
				s.Apply(Delta{Update: []*v1.Pod{pod}})
			}
		}
	}
	run("deltas", 1, 1, deltas)
	run("deltas", 100, 1, deltas)
}

// receive has the reader receive what there is, which is so many changes.
func receive(b *testing.B, m *Mux, changes int) {
	received := 0
	for next := m.next(); next != nil; next = m.merger.next() {
		next.complete()
		m.merger.received()
		received++
	}
	if received != changes {
		b.Fatalf("%d changes, want %d", received, changes)
	}
}

// BenchmarkSlowReader sends updates of 1000 pods, and comings and goings of ever new
// ones, through a running mux whose reader takes one change each 10 ms. It reports
// the updates of one second and by how much the live heap grew in all of the run.
func BenchmarkSlowReader(b *testing.B) {
	pods := manyPods(b, 1000)
	work := make(chan int)
	m, err := New(Options{Sources: []Source{sourceFunc{"broker", func(ctx context.Context, sink Sink) error {
		sink.Set(pods)
		for n := range work {
			pod := *pods[n%len(pods)]
			pod.Labels = map[string]string{"n": fmt.Sprint(n)}
			extra := *pods[0]
			extra.Name, extra.UID = fmt.Sprint("extra-", n), types.UID(fmt.Sprint("extra-", n))
			sink.Apply(Delta{Update: []*v1.Pod{&pod, &extra}})
			sink.Apply(Delta{Remove: []types.UID{types.UID(fmt.Sprint("extra-", n-10))}})
		}
		<-ctx.Done()
		return nil
	}}}})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	<-m.Changes()
	read := make(chan struct{})
	go func() {
		defer close(read)
		for range m.Changes() {
			time.Sleep(10 * time.Millisecond)
		}
	}()
	live := func() float64 {
		goruntime.GC()
		var s goruntime.MemStats
		goruntime.ReadMemStats(&s)
		return float64(s.HeapAlloc)
	}
	for n := range 2000 { // every pod was updated once
		work <- n
	}
	before := live()
	b.ReportAllocs()
	n := 2000
	for b.Loop() {
		work <- n
		n++
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "updates/s")
	b.ReportMetric((live()-before)/1024, "heap-growth-KiB")
	close(work)
	cancel()
	<-read
	if err := <-done; err != nil {
		b.Fatal(err)
	}
}

// BenchmarkNewPods delivers a snapshot of 1000 pods that the mux has not had before. One of them costs a thousandth of
// it.
func BenchmarkNewPods(b *testing.B) {
	pods := manyPods(b, 1000)
	for name, source := range map[string]string{"api": "api", "others": "broker"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				m, err := New(Options{Sources: []Source{NewStatic(source)}})
				if err != nil {
					b.Fatal(err)
				}
				(&sink{mux: m, registration: m.merger.sources[0]}).Set(pods)
				receive(b, m, 1)
			}
		})
	}
}
