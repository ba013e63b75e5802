package prober_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/history/fake"
	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/prober"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// node is a runtime and its cache in one: instances run in it, and their commands
// answer as the test says.
type node struct {
	mu     sync.Mutex
	start  time.Time
	status map[types.UID]*runtime.PodStatus
	// answer is what a command does; nil succeeds.
	answer map[string]func(ctx context.Context) (int32, error)
	// log has the time of each command, its name and its instance.
	log []string
}

func newNode() *node {
	return &node{start: time.Now(), status: map[types.UID]*runtime.PodStatus{},
		answer: map[string]func(context.Context) (int32, error){}}
}

func (n *node) Get(uid types.UID) (*runtime.PodStatus, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	s, ok := n.status[uid]
	return s, ok
}

func (n *node) Exec(ctx context.Context, id runtime.ContainerID, cmd []string,
	_ time.Duration) (runtime.ExecResult, error) {
	n.mu.Lock()
	n.log = append(n.log, fmt.Sprintf("%v %s %s", time.Since(n.start), cmd[0], id.ID))
	f := n.answer[cmd[0]]
	n.mu.Unlock()
	if f == nil {
		return runtime.ExecResult{}, nil
	}
	code, err := f(ctx)
	return runtime.ExecResult{ExitCode: code}, err
}

// on sets what a command does: its exit code.
func (n *node) on(cmd string, code int32) {
	n.onCall(cmd, func(context.Context) (int32, error) { return code, nil })
}

func (n *node) onCall(cmd string, f func(context.Context) (int32, error)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.answer[cmd] = f
}

// set makes the instance the newest of container "app".
func (n *node) set(uid types.UID, id string, state runtime.ContainerState, started time.Time) {
	n.setStatus(uid, runtime.PodStatus{Containers: []runtime.ContainerStatus{*instance(id, state, started)}})
}

func (n *node) setStatus(uid types.UID, status runtime.PodStatus) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.status[uid] = &status
}

// commands returns the log and clears it.
func (n *node) commands() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := strings.Join(n.log, ", ")
	n.log = nil
	return out
}

func instance(id string, state runtime.ContainerState, started time.Time) *runtime.ContainerStatus {
	return &runtime.ContainerStatus{
		Container: runtime.Container{ID: runtime.ContainerID{Type: "fake", ID: id}, Name: "app", State: state},
		StartedAt: started,
	}
}

func exec(cmd string, p v1.Probe) *v1.Probe {
	p.Exec = &v1.ExecAction{Command: []string{cmd}}
	return &p
}

// podWith returns pod default/web with UID u1 and the container as "app".
func podWith(c v1.Container) *v1.Pod {
	c.Name = "app"
	return testpod.New("web", testpod.UID("u1"), testpod.Container(c))
}

func id(s string) runtime.ContainerID { return runtime.ContainerID{Type: "fake", ID: s} }

// harness runs a manager in virtual time and collects its results.
type harness struct {
	*prober.Prober
	*node
	t      *testing.T
	got    []string
	events []string
	past   fake.History
	mu     sync.Mutex
}

// scenario runs the test in a bubble with a running manager.
func scenario(t *testing.T, f func(h *harness)) {
	t.Helper()
	scenarioWith(t, prober.Options{}, f)
}

func scenarioWith(t *testing.T, opts prober.Options, f func(h *harness)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		h := &harness{node: n, t: t}
		opts.Jitter, opts.Record = func() float64 { return 0.5 }, h.past.Record
		opts.Event = func(e runtime.Event) {
			h.mu.Lock()
			h.events = append(h.events, fmt.Sprintf("%v %s %s %s: %s", e.Pod, e.FieldPath, e.Type, e.Reason, e.Message))
			h.mu.Unlock()
		}
		m, err := prober.New(n, n, opts)
		require.NoError(t, err)
		h.Prober = m
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { assert.NoError(t, m.Run(ctx)) })
		wg.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case r := <-m.Results():
					h.mu.Lock()
					h.got = append(h.got, fmt.Sprintf("%v %s %s %v", time.Since(n.start), r.Kind, r.ContainerID.ID,
						r.Healthy))
					h.mu.Unlock()
				}
			}
		})
		synctest.Wait()
		f(h)
		cancel()
		wg.Wait()
	})
}

func (h *harness) run(id string) {
	h.node.set("u1", id, runtime.ContainerRunning, time.Now())
	h.Notify("u1")
	synctest.Wait()
}

func (h *harness) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (h *harness) results() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := strings.Join(h.got, ", ")
	h.got = nil
	return out
}
