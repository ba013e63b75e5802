package agenttest

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/testr"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/internal/bubble"
	"github.com/kubeletkit/kubeletkit/podconfig"
	podconfigfake "github.com/kubeletkit/kubeletkit/podconfig/fake"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
	statusfake "github.com/kubeletkit/kubeletkit/status/fake"
)

// Options are the settings of [Run]. The zero value is valid.
type Options struct {
	// Runtime are the options of the runtime. Dir is that of the test.
	Runtime fake.Options
	// Configure changes the options of the agent before it is made, for example to wrap a part. It is called in the
	// bubble; the Agent of the node is nil then. nil: nothing is changed.
	Configure func(n *Node, opts *kubeletkit.Options)
	// BeforeRun is called when the agent is made and does not run yet, for example for [kubeletkit.Agent.Add]. nil:
	// nothing is called.
	BeforeRun func(t *testing.T, n *Node)
}

// Node is an agent in a test.
type Node struct {
	// Agent runs while the test function does.
	*kubeletkit.Agent
	// Runtime runs the pods.
	Runtime *fake.Runtime
	// Source has the pods that are to run. Its name is "test".
	Source *podconfigfake.Source
	// Sink receives the statuses.
	Sink *statusfake.Sink
}

// Run runs the test function in a bubble, with an agent that runs. If time in the bubble cannot pass, since a goroutine
// waits on a channel that was made outside of it, Run panics after a minute of real time at most, and names the
// goroutine.
func Run(t *testing.T, opts Options, test func(t *testing.T, n *Node)) {
	t.Helper()
	dir := t.TempDir() // not in the bubble, which is not in the time of files
	watchdog := startWatchdog(stuck, func(message string) { panic(message) })
	defer watchdog.close()
	bubble.Test(t, func(t *testing.T) {
		watchdog.enter()
		opts.Runtime.Dir = dir
		n := &Node{Runtime: fake.New(opts.Runtime), Source: podconfigfake.NewSource("test"), Sink: statusfake.NewSink()}
		defer func() {
			if err := n.Runtime.Close(); err != nil {
				t.Errorf("agenttest: closing the runtime: %v", err)
			}
		}()
		agent, err := kubeletkit.New(n.options(t, dir, opts.Configure))
		if err != nil {
			t.Fatalf("agenttest: %v", err)
		}
		n.Agent = agent
		if opts.BeforeRun != nil {
			opts.BeforeRun(t, n)
		}
		defer n.run(t)()
		test(t, n)
	})
}

// options returns the options of the agent.
func (n *Node) options(t *testing.T, dir string, configure func(*Node, *kubeletkit.Options)) kubeletkit.Options {
	opts := kubeletkit.Options{
		NodeName: "node", RootDir: dir, Host: n.Runtime.Host(), Runtime: n.Runtime,
		Sources: []podconfig.Source{n.Source}, StatusSink: n.Sink,
		Observe: kubeletkit.Observe{Logger: testr.NewWithOptions(t, testr.Options{LogTimestamp: true})},
	}
	if configure != nil {
		configure(n, &opts)
	}
	return opts
}

// run runs the agent until the function that it returns is called.
func (n *Node) run(t *testing.T) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := n.Run(ctx); err != nil {
			t.Errorf("agenttest: the agent has ended: %v", err) // at once: the test may wait for the agent in vain
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}

// Sleep waits until d has passed, and until the agent has done all that is due by then.
func (n *Node) Sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}
