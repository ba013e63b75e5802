package repository_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/agenttest"
	"github.com/kubeletkit/kubeletkit/cluster"
	"github.com/kubeletkit/kubeletkit/gc"
	"github.com/kubeletkit/kubeletkit/kubelet"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/metrics/prometheus/statsmetrics"
	"github.com/kubeletkit/kubeletkit/node/stats"
	"github.com/kubeletkit/kubeletkit/pleg"
	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/prober"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/cri"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
	"github.com/kubeletkit/kubeletkit/server"
)

// The Go snippets of the documents stand here word for word, so that they compile;
// TestSnippetsCompile sees to it.

func joining(ctx context.Context, rt runtime.Runtime, restConfig *rest.Config) error {
	member, err := cluster.New(cluster.Config{NodeName: "edge-7", REST: restConfig})
	if err != nil {
		return err
	}
	opts := kubeletkit.Options{NodeName: "edge-7", Runtime: rt}
	if err := member.Configure(&opts); err != nil { // its source, sink, objects, events and components
		return err
	}
	return kubeletkit.Run(ctx, opts)
}

func usage(opts kubeletkit.Options, logsDir string) (http.Handler, error) {
	collector, err := stats.New(opts.Runtime, stats.Options{RootDir: opts.RootDir, PodLogsDir: logsDir})
	if err != nil {
		return nil, err
	}
	opts.Join = append(opts.Join, collector)
	agent, err := kubeletkit.New(opts)
	if err != nil {
		return nil, err
	}
	return server.Handler(agent, server.Options{
		Stats: collector.Summary, ResourceMetrics: statsmetrics.Resource(collector),
		CadvisorMetrics: statsmetrics.Cadvisor(collector, statsmetrics.CadvisorOptions{}),
	}), nil
}

func onePart(ctx context.Context, rt *cri.Runtime, errs chan<- error) {
	cache := runtime.NewCache(rt, runtime.CacheOptions{})
	changes := pleg.NewEvented(rt, cache, pleg.EventedOptions{}) // relists every second if rt has no events
	go func() { errs <- changes.Run(ctx) }()
	for pod := range changes.Watch() { // nothing is dropped, however slow this loop is
		status, _ := cache.Get(pod.Pod.UID)
		fmt.Println(pod.Pod, pod.Events, status != nil)
	}
}

func ownControlPlane(deliver func(to chan<- []*v1.Pod)) podconfig.Source {
	messages := make(chan []*v1.Pod) // each is the full list; the mux finds out what changed
	source := podconfig.NewChannel("broker", messages)
	go deliver(messages)
	return source
}

func overriding(opts kubeletkit.Options) {
	opts.Override.Prober = kubeletkit.Wrap(func(p prober.Manager) prober.Manager { return &audited{Manager: p} })
	opts.Override.GC = kubeletkit.Replace[gc.Collector](gc.Base{})
	opts.Override.PLEG = func(_ pleg.Generator, p kubeletkit.Parts) (pleg.Generator, error) {
		return pleg.NewGeneric(p.Runtime, p.Cache, p.PLEGOptions.Options), nil
	}
}

func (p *ports) Join(node lifecycle.Node) error {
	p.node = node
	node.AddReadyCheck("serial ports", func() error { return nil })
	return nil
}

// A pod without a licence is refused before it is given CPUs, memory or devices.
func (*ports) Order() lifecycle.Order { return lifecycle.Order{Before: []string{"topology"}} }

type audited struct{ prober.Manager }

type ports struct {
	lifecycle.Component
	node lifecycle.Node
}

type counting struct{ runtime.Runtime }

func (c counting) Unwrap() any { return c.Runtime }

func TestRestart(t *testing.T) {
	agenttest.Run(t, agenttest.Options{}, func(t *testing.T, n *agenttest.Node) {
		// fails after an hour, once
		n.Runtime.Script(fake.Target{Pod: "pod-0"}, fake.Times(1, fake.Exits(time.Hour, 1))...)
		n.Source.Set(fake.Pods(1, 1)...)
		n.Sleep(61 * time.Minute)
		status := n.Pods()[0].Status.ContainerStatuses[0]
		assert.True(t, status.Ready)
		assert.EqualValues(t, 1, status.RestartCount)
	})
}

func acmeKubelet(serialPorts lifecycle.Component, fleet podconfig.Source, modbus prober.Handler) {
	kubelet.Main(kubelet.Options{
		Name:    "acme-kubelet",
		Join:    []lifecycle.Component{serialPorts},
		Sources: []podconfig.Source{fleet},
		Probes:  []prober.Handler{modbus},
	})
}

func wholeKubelet(ctx context.Context, args []string, opts kubelet.Options) error {
	config, err := kubelet.Load(args, opts)
	if err != nil {
		return err
	}
	k, err := kubelet.New(ctx, config)
	if err != nil {
		return err
	}
	return k.Run(ctx) // blocks; pods go on running
}

var (
	_ = acmeKubelet
	_ = wholeKubelet
	_ = counting{}
	_ = overriding
	_ = (&ports{}).Join
	_ = (&ports{}).Order
	_ = onePart
	_ = joining
	_ = usage
	_ = ownControlPlane
)

func TestSnippetsCompile(t *testing.T) {
	self, err := os.ReadFile("test/repository/readme_test.go")
	require.NoError(t, err)
	compiled := flat(string(self))
	for doc, text := range documents(t) {
		if doc == "docs/embed/tutorial.md" {
			continue // TestTutorial
		}
		for _, m := range regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(text, -1) {
			if strings.HasPrefix(m[1], "package main\n") {
				compiles(t, doc, m[1])
				continue
			}
			assert.Containsf(t, compiled, flat(m[1]), "%s: this snippet is not in readme_test.go, so nothing "+
				"compiles it", doc)
		}
	}
}

// compiles compiles a whole program. Unlike "go vet" and "go build", this neither examines its dependencies nor links
// them.
func compiles(t *testing.T, doc, program string) {
	file := filepath.Join(t.TempDir(), "main.go")
	require.NoError(t, os.WriteFile(file, []byte(program), 0o600))
	out, err := exec.CommandContext(t.Context(), "go", "list", "-export", file).CombinedOutput()
	require.NoErrorf(t, err, "%s: %s", doc, out)
}

// flat removes the indentation.
func flat(s string) string {
	var b strings.Builder
	for line := range strings.Lines(s) {
		b.WriteString(strings.TrimSpace(line) + "\n")
	}
	return b.String()
}
