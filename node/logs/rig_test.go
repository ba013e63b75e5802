package logs

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/fswatch"
	nodefake "github.com/kubeletkit/kubeletkit/lifecycle/fake"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/crilog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a directory with logs of containers, and a manager of them.
type rig struct {
	testing.TB
	dir  string
	opts Options

	mu         sync.Mutex
	containers map[string]*container // by ID
	watched    map[string]bool
	written    chan fswatch.Changes
	adds       int
	// reopen is called before a container opens a new log, if it is not nil. opened is called after it.
	reopen, opened func(c *container) error
	messages       []string
	node           nodefake.Node
	// unwatched is the error of Add, if it is not nil.
	unwatched error

	m    *Manager
	stop func()
}

// container writes numbered lines to its log.
type container struct {
	rig  *rig
	id   runtime.ContainerID
	pod  *v1.Pod
	path string
	f    *os.File
	next int
}

func newRig(t testing.TB) *rig {
	r := &rig{TB: t, dir: t.TempDir(), containers: map[string]*container{}, stop: func() {}}
	r.opts = Options{Dir: r.dir, MaxSize: 10 << 10, MaxFiles: 4, watch: func() (watcher, error) { return r, nil }}
	r.node.Log = funcr.New(func(_, args string) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.messages = append(r.messages, args)
	}, funcr.Options{})
	t.Cleanup(func() { r.stop() })
	return r
}

// restart ends the manager, starts another one, and reports the running containers to it.
func (r *rig) restart() {
	r.stop()
	m, err := New(r, r.opts)
	require.NoError(r, err)
	require.NoError(r, m.Join(&r.node))
	r.mu.Lock()
	r.m, r.watched, r.written = m, map[string]bool{}, make(chan fswatch.Changes, 1000)
	r.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	var run sync.WaitGroup
	run.Go(func() { assert.NoError(r, m.Run(ctx)) })
	r.stop = func() {
		cancel()
		run.Wait()
		r.stop = func() {}
	}
	for _, c := range r.all() {
		r.running(c.pod)
	}
	synctest.Wait()
}

// logged returns the messages of the log.
func (r *rig) logged() []string {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.messages)
}

func (r *rig) all() []*container {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []*container
	for _, c := range r.containers {
		all = append(all, c)
	}
	return all
}

// running tells the manager which containers of the pod run.
func (r *rig) running(pod *v1.Pod) {
	status := &runtime.PodStatus{PodRef: runtime.RefOf(pod)}
	for _, c := range r.all() {
		if c.pod == pod {
			status.Containers = append(status.Containers, runtime.ContainerStatus{
				Container: runtime.Container{ID: c.id, Name: "main", State: runtime.ContainerRunning}, LogPath: c.path,
			})
		}
	}
	require.NoError(r, r.m.Running(r.Context(), pod, status))
}

// start starts the only container of a pod.
func (r *rig) start(name string) *container {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name)}}
	c := &container{rig: r, id: runtime.ContainerID{Type: "test", ID: name}, pod: pod,
		path: filepath.Join(r.dir, runtime.RefOf(pod).LogDirName(), "main", "0.log")}
	require.NoError(r, os.MkdirAll(filepath.Dir(c.path), 0o755))
	require.NoError(r, c.open())
	r.mu.Lock()
	r.containers[name] = c
	r.mu.Unlock()
	r.running(pod)
	r.Cleanup(func() { _ = c.f.Close() })
	return c
}

func (c *container) open() error {
	f, err := os.OpenFile(c.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o640)
	if err != nil {
		return err
	}
	_ = c.f.Close()
	c.f = f
	return nil
}

// write writes lines of about that many bytes, and has the manager told.
func (c *container) write(bytes int) {
	c.rig.mu.Lock()
	defer c.rig.mu.Unlock()
	var b strings.Builder
	for b.Len() < bytes {
		fmt.Fprintf(&b, "2026-01-02T03:04:05.000000006Z stdout F %d\n", c.next)
		c.next++
	}
	_, err := c.f.WriteString(b.String())
	require.NoError(c.rig, err)
	if c.rig.watched[c.path] {
		select {
		case c.rig.written <- writeTo(c.path):
		default: // the channel is full of events already
		}
	}
}

// ReopenContainerLog implements [runtime.LogReopener].
func (r *rig) ReopenContainerLog(_ context.Context, id runtime.ContainerID) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.containers[id.ID]
	if c == nil {
		return runtime.ErrNotFound
	}
	if r.reopen != nil {
		if err := r.reopen(c); err != nil {
			return err
		}
	}
	if err := c.open(); err != nil {
		return err
	}
	if r.opened != nil {
		return r.opened(c)
	}
	return nil
}

// measured returns the numbers of logs that were rotated and that could not be, and of files that were compressed and
// that could not be.
func (r *rig) measured() [4]int {
	var n [4]int
	for _, m := range r.node.Measurements() {
		switch m {
		case Rotated{}:
			n[0]++
		case Compressed{}:
			n[2]++
		default:
			if _, ok := m.(Rotated); ok {
				n[1]++
			} else {
				n[3]++
			}
		}
	}
	return n
}

// Add, Remove, Changes and Close implement watcher.
func (r *rig) Add(path string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.unwatched != nil {
		return r.unwatched
	}
	r.watched[path] = true
	r.adds++
	_, err := os.Lstat(path)
	return err
}

func (r *rig) Remove(path string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.watched, path)
}

func (r *rig) Changes() <-chan fswatch.Changes { return r.written }
func (r *rig) Close()                          {}

// writeTo is the change of a file that is written to.
func writeTo(path string) fswatch.Changes {
	return fswatch.Changes{Ops: map[string]fswatch.Op{path: fswatch.Write}}
}

// files returns the names and the sizes of the log and of the rotated files, the oldest first.
func (c *container) files() (names []string, sizes map[string]int64) {
	entries, err := os.ReadDir(filepath.Dir(c.path))
	require.NoError(c.rig, err)
	sizes = map[string]int64{}
	var all []string
	for _, e := range entries {
		info, err := e.Info()
		require.NoError(c.rig, err)
		sizes[e.Name()] = info.Size()
		all = append(all, e.Name())
	}
	rotated, _ := crilog.FindRotated("0.log", all)
	for _, r := range rotated {
		names = append(names, r.File())
	}
	if _, ok := sizes["0.log"]; ok {
		names = append(names, "0.log")
	}
	return names, sizes
}

// check asserts that the files have all lines from one on, in order, up to the last one that was written. It returns
// the first.
func (c *container) check() (first int) {
	c.rig.mu.Lock()
	defer c.rig.mu.Unlock()
	names, _ := c.files()
	first, next := -1, 0
	for _, name := range names {
		for line := range strings.Lines(c.read(name)) {
			n, err := strconv.Atoi(strings.TrimSpace(line[strings.LastIndexByte(line, ' ')+1:]))
			require.NoError(c.rig, err)
			if first < 0 {
				first, next = n, n
			}
			require.Equal(c.rig, next, n, "%s of %v", name, names)
			next++
		}
	}
	require.Equal(c.rig, c.next, next, "%v", names)
	return max(first, 0)
}

func (c *container) read(name string) string {
	f, err := os.Open(filepath.Join(filepath.Dir(c.path), name))
	require.NoError(c.rig, err)
	defer f.Close()
	var src io.Reader = f
	if strings.HasSuffix(name, crilog.Compressed) {
		src, err = gzip.NewReader(f)
		require.NoError(c.rig, err)
	}
	data, err := io.ReadAll(src)
	require.NoError(c.rig, err)
	return string(data)
}

var errReopen = errors.New("the runtime does not answer")

// run runs a test in virtual time.
func run(t *testing.T, test func(r *rig)) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.restart()
		defer func() { r.stop() }()
		test(r)
	})
}
