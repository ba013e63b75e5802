package server

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/fswatch"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// onePod is an agent with one pod, whose instances of a container come and go.
type onePod struct {
	Agent
	mu   sync.Mutex
	pod  *v1.Pod
	seen runtime.PodStatus
}

func (p *onePod) Pods() []*v1.Pod {
	p.mu.Lock()
	defer p.mu.Unlock()
	return []*v1.Pod{p.pod.DeepCopy()}
}

func (p *onePod) Pod(types.UID) (*v1.Pod, bool) { return p.Pods()[0], true }

func (p *onePod) RuntimeStatus(types.UID) (*runtime.PodStatus, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return &runtime.PodStatus{Containers: slices.Clone(p.seen.Containers)}, true
}

func (*onePod) WatchRuntimeStatus(types.UID) (<-chan struct{}, func()) { return nil, func() {} }

func (p *onePod) change(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

// A reader that follows all instances of a container passes over one that has ended without a log,
// and waits a moment for the last output of one whose end it has found.
func TestFollowOfInstancesThatHaveEnded(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		var seen []*runtime.ContainerStatus
		for i, name := range []string{"a", "none", "b"} {
			c := &runtime.ContainerStatus{ExitCode: 1, LogPath: filepath.Join(dir, name)}
			c.ID, c.Name, c.State = runtime.ContainerID{Type: "t", ID: name}, "c", runtime.ContainerExited
			c.CreatedAt = time.Unix(int64(i), 0)
			seen = append(seen, c)
		}
		write := func(name, text string) {
			f, err := os.OpenFile(filepath.Join(dir, name), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
			require.NoError(t, err)
			_, err = f.WriteString(text)
			require.NoError(t, errors.Join(err, f.Close()))
		}
		const stamp = "2026-01-02T03:04:05.000000006Z stdout F "
		write("a", stamp+"one\n")
		write("b", "")
		node := &onePod{pod: &v1.Pod{Spec: v1.PodSpec{RestartPolicy: v1.RestartPolicyAlways,
			Containers: []v1.Container{{Name: "c"}}}}}
		running := *seen[0]
		running.State = runtime.ContainerRunning
		node.seen.Containers = []runtime.ContainerStatus{running}
		watch := newLogWatch(logr.Discard())
		watch.open = func() (*fswatch.Watcher, error) { return nil, errors.New("too many watches") } // once a second
		var out bytes.Buffer
		opts := logOptions{follow: true, restarts: true, tail: -1, limit: -1}
		s := &logStream{
			containerLogs: &containerLogs{agent: node, watch: watch, log: logr.Discard()},
			pod:           node.pod, container: "c", out: newLineWriter(&out, func() {}, opts), opts: opts,
		}
		done := make(chan error, 1)
		go func() { done <- s.run(t.Context(), &running) }()
		time.Sleep(time.Second / 2)
		node.change(func() { node.seen.Containers = []runtime.ContainerStatus{*seen[2], *seen[1], *seen[0]} })
		time.Sleep(time.Second/2 + 2*settleTime + settleTime/2) // the log of b is open
		write("b", stamp+"late\n")
		time.Sleep(settleTime)
		synctest.Wait()
		assert.Equal(t, "one\nlate\n", out.String())
		node.change(func() { node.pod.Status.Phase = v1.PodFailed })
		require.NoError(t, <-done)
	})
}

// The clock may jump between two instances of a container; the older one may be removed.
func TestNextInstanceAfterAJumpOfTheClock(t *testing.T) {
	instance := func(id string, created time.Time) (c runtime.ContainerStatus) {
		c.ID, c.Name, c.State, c.CreatedAt, c.LogPath = runtime.ContainerID{Type: "t", ID: id},
			"c", runtime.ContainerExited, created, "/"+id
		return c
	}
	now := time.Unix(1_000_000, 0)
	for _, jump := range []time.Duration{-10 * time.Hour, 0, 10 * time.Hour} {
		first, second, third := instance("first", now), instance("second", now.Add(jump)),
			instance("third", now.Add(jump))
		seen := &runtime.PodStatus{Containers: []runtime.ContainerStatus{third, second, first}}
		assert.Equal(t, second.ID, nextInstance(seen, &first).ID, "%v", jump)
		assert.Equal(t, third.ID, nextInstance(seen, &second).ID, "%v", jump)
		assert.Nil(t, nextInstance(seen, &third), "%v", jump)
		seen.Containers = seen.Containers[:2]
		assert.Equal(t, second.ID, nextInstance(seen, &first).ID, "%v: the first one was removed", jump)
		assert.Nil(t, nextInstance(nil, &first))
	}
}

func TestMayRestart(t *testing.T) {
	always, never := v1.ContainerRestartPolicyAlways, v1.ContainerRestartPolicyNever
	for _, tt := range []struct {
		pod       v1.RestartPolicy
		own       *v1.ContainerRestartPolicy
		init      bool
		code0, co bool // after exit code 0, after another
	}{
		{v1.RestartPolicyAlways, nil, false, true, true},
		{v1.RestartPolicyOnFailure, nil, false, false, true},
		{v1.RestartPolicyNever, nil, false, false, false},
		{v1.RestartPolicyNever, &always, false, true, true},
		{v1.RestartPolicyAlways, &never, false, false, false},
		{v1.RestartPolicyAlways, nil, true, false, true},
		{v1.RestartPolicyNever, nil, true, false, false},
		{v1.RestartPolicyNever, &always, true, true, true},
	} {
		pod := &v1.Pod{Spec: v1.PodSpec{RestartPolicy: tt.pod}}
		c := v1.Container{Name: "c", RestartPolicy: tt.own}
		if tt.init {
			pod.Spec.InitContainers = []v1.Container{c}
		} else {
			pod.Spec.Containers = []v1.Container{c}
		}
		assert.Equal(t, tt.code0, mayRestart(pod, "c", 0), "%+v", tt)
		assert.Equal(t, tt.co, mayRestart(pod, "c", 1), "%+v", tt)
	}
}
