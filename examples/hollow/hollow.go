package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/podconfig"
	podconfigfake "github.com/kubeletkit/kubeletkit/podconfig/fake"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
	"github.com/kubeletkit/kubeletkit/server"
	"github.com/kubeletkit/kubeletkit/status"
)

type settings struct {
	agents, pods         int
	runFor, stay, settle time.Duration
	listen, heapProfile  string
	kubeconfig           string
}

// image is the image of all containers.
const image = "registry.k8s.io/pause:3.10"

func run(ctx context.Context, out io.Writer, s settings) error {
	dir, err := os.MkdirTemp("", "hollow")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()

	counted := newCounter(s.agents * s.pods)
	before := measure()
	build := newAgent
	ready := newCounter(0)
	if s.kubeconfig != "" {
		fleet, err := newFleet(s.kubeconfig, s.agents)
		if err != nil {
			return err
		}
		build, ready = fleet.newAgent, fleet.ready
	}
	began := time.Now()
	mux := http.NewServeMux()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	g, gctx := errgroup.WithContext(ctx)
	for i := range s.agents {
		agent, err := build(fmt.Sprintf("hollow-%d", i), dir, s, counted)
		if err != nil {
			cancel()
			return errors.Join(err, g.Wait())
		}
		name := fmt.Sprintf("/hollow-%d", i)
		mux.Handle(name+"/", http.StripPrefix(name, server.Handler(agent, server.Options{})))
		g.Go(func() error { return agent.Run(gctx) })
	}
	if s.listen != "" {
		l, err := net.Listen("tcp", s.listen)
		if err != nil {
			cancel()
			return errors.Join(err, g.Wait())
		}
		g.Go(func() error { return server.Serve(gctx, l, mux) })
	}
	g.Go(func() error {
		defer cancel()
		if !ready.wait(gctx) {
			return nil
		}
		if s.kubeconfig != "" {
			fmt.Fprintf(out, "%d nodes are ready after %s\n", s.agents, time.Since(began).Round(10*time.Millisecond))
		}
		if !counted.wait(gctx) {
			return nil
		}
		took := time.Since(began)
		sleep(gctx, s.settle)
		report(out, s, took, before, measure())
		if s.heapProfile != "" {
			if err := writeHeapProfile(s.heapProfile); err != nil {
				return err
			}
		}
		sleep(gctx, s.stay)
		return nil
	})
	return g.Wait()
}

// newAgent returns an agent with its runtime and its pods.
func newAgent(name, dir string, s settings, sink *counter) (*kubeletkit.Agent, error) {
	rt := fake.New(fake.Options{Calls: -1, Images: []string{image}, Dir: filepath.Join(dir, name),
		Behavior: func(fake.Container) fake.Behavior {
			return fake.Behavior{RunFor: s.runFor, ExitCode: 1}
		}})
	host := rt.Host()
	host.NodeName, host.Hostname = name, name
	source := podconfigfake.NewSource("hollow")
	var pods []*v1.Pod
	for i := range s.pods {
		pods = append(pods, makePod(name, i))
	}
	source.Set(pods...)
	return kubeletkit.New(kubeletkit.Options{
		NodeName: name, RootDir: filepath.Join(dir, name), Host: host,
		Runtime: rt, Sources: []podconfig.Source{source}, StatusSink: sink,
	})
}

func makePod(node string, i int) *v1.Pod {
	name := fmt.Sprintf("pod-%d", i)
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "default", UID: types.UID(node + "-" + name),
			Labels: map[string]string{"app": "hollow"},
		},
		Spec: v1.PodSpec{NodeName: node,
			Containers: []v1.Container{{Name: "main", Image: image, ImagePullPolicy: v1.PullIfNotPresent}}},
	}
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// counter counts objects by their UID. As a status sink it counts the pods that have become
// Running.
type counter struct {
	status.SinkBase
	mu   sync.Mutex
	want int
	seen map[types.UID]bool
	// all is closed when their number has reached want.
	all chan struct{}
}

func newCounter(want int) *counter {
	c := &counter{want: want, seen: map[types.UID]bool{}, all: make(chan struct{})}
	if want == 0 {
		close(c.all)
	}
	return c
}

// Deliver implements status.Sink.
func (c *counter) Deliver(_ context.Context, pod *v1.Pod, st v1.PodStatus) (status.Result, error) {
	if st.Phase == v1.PodRunning {
		c.add(pod.UID)
	}
	return status.Result{}, nil
}

// add counts the object unless it was counted before.
func (c *counter) add(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen[uid] {
		return
	}
	c.seen[uid] = true
	if len(c.seen) == c.want {
		close(c.all)
	}
}

func (c *counter) wait(ctx context.Context) bool {
	select {
	case <-c.all:
		return true
	case <-ctx.Done():
		return false
	}
}
