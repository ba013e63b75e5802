package holdings

import (
	"context"
	"errors"
	"maps"
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
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// node is a node with a root directory, from which pods are gone.
type node struct {
	lifecycle.NopNode
	root string
	gone map[types.UID]bool
}

func (n node) RootDir() string         { return n.root }
func (n node) Logger() logr.Logger     { return logr.Discard() }
func (n node) Gone(uid types.UID) bool { return n.gone[uid] }

// withDirs returns a node in which the pods have directories.
func withDirs(t *testing.T, pods ...string) node {
	n := node{root: t.TempDir(), gone: map[types.UID]bool{}}
	for _, uid := range pods {
		require.NoError(t, os.MkdirAll(filepath.Join(n.root, "pods", uid), 0o700))
	}
	return n
}

// manager gives each pod one thing.
type manager struct {
	*Record
	problem error
	unfit   []types.UID
	file    []types.UID // the pods in it

	mu       sync.Mutex
	holds    map[types.UID]bool
	released []types.UID
	then     int
}

func newManager(t *testing.T, n lifecycle.Node, opts Options, pods ...types.UID) *manager {
	m := &manager{file: pods, holds: map[types.UID]bool{}}
	m.Record = New(filepath.Join(t.TempDir(), "state"), m.read, m.content, m.release, opts)
	m.Join(n)
	return m
}

func (m *manager) read() error {
	if m.problem != nil {
		m.Unfit(m.problem, m.unfit, true)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, uid := range m.file {
		if m.Earlier(uid) {
			m.holds[uid] = true
		}
	}
	return nil
}

func (m *manager) content() ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	data := []byte("pods:")
	for _, uid := range slices.Sorted(maps.Keys(m.holds)) {
		data = append(data, " "+uid...)
	}
	return data, nil
}

func (m *manager) release(uid types.UID) (changed bool, then func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	had := m.holds[uid]
	delete(m.holds, uid)
	m.released = append(m.released, uid)
	return had, func() {
		m.mu.Lock() // it is called without a lock
		defer m.mu.Unlock()
		m.then++
	}
}

func (m *manager) has(uid types.UID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.holds[uid]
}

func TestGone(t *testing.T) {
	n := withDirs(t, "there", "ended")
	n.gone["ended"] = true
	m := newManager(t, n, Options{})
	for uid, want := range map[types.UID]bool{"there": false, "ended": true, "none": true, "../there": true} {
		assert.Equal(t, want, m.Gone(uid), uid)
		assert.Equal(t, !want, m.Runs(uid), uid)
	}
	for _, root := range []string{"", filepath.Join(n.root, "none")} {
		m := newManager(t, node{root: root}, Options{})
		assert.False(t, m.Gone("none"), "it is not known")
		assert.False(t, m.Runs("none"), "it is not known")
	}
}

// A pod of the file keeps what it holds, until it has ended or is gone.
func TestEarlierPods(t *testing.T) {
	n := withDirs(t, "a", "b", "admitted")
	m := newManager(t, n, Options{}, "a", "b", "admitted", "lost")
	require.NoError(t, m.Restore())
	assert.True(t, m.has("lost"))
	goesOn, err := m.Admit("admitted")
	require.NoError(t, err)
	assert.False(t, goesOn)
	assert.False(t, m.has("lost"), "it has no directory")
	require.NoError(t, os.RemoveAll(n.root))
	require.NoError(t, os.Mkdir(n.root, 0o700))
	m.Ended("a")
	assert.False(t, m.has("b"), "it is gone")
	assert.True(t, m.has("admitted"), "it has an end")
	assert.Equal(t, []types.UID{"lost", "a", "b"}, m.released)
	assert.Equal(t, 3, m.then)
	m.Refused("admitted")
	m.Refused("admitted")
	assert.Empty(t, m.holds)
}

// What has ended before the file is read holds nothing afterwards.
func TestEndBeforeTheRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	fails := errors.New("input/output error")
	m := &manager{file: []types.UID{"a", "b"}, holds: map[types.UID]bool{}}
	synctest.Test(t, func(t *testing.T) {
		m.Record = New(path, func() error {
			if fails != nil {
				return fails
			}
			return m.read()
		}, m.content, m.release, Options{})
		m.Ended("a")
		_, err := m.Admit("b")
		require.ErrorIs(t, err, fails)
		fails = nil
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); m.Run(ctx, logr.Discard()) }()
		time.Sleep(2 * time.Second) // it is read again
		cancel()
		<-done
	})
	assert.False(t, m.has("a"))
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, "pods: b", string(data))
}

// A file that does not fit is dropped if no pod of it runs.
func TestUnfit(t *testing.T) {
	bad := errors.New("it does not fit")
	pod := func(uid types.UID, state runtime.SandboxState) *runtime.Pod {
		return &runtime.Pod{PodRef: runtime.PodRef{UID: uid}, Sandboxes: []runtime.Sandbox{{State: state}}}
	}
	listing := func(err error, pods ...*runtime.Pod) func() ([]*runtime.Pod, error) {
		return func() ([]*runtime.Pod, error) { return pods, err }
	}
	none, unreadable := []types.UID(nil), node{root: t.TempDir()}
	require.NoError(t, os.WriteFile(filepath.Join(unreadable.root, "pods"), nil, 0o600)) // no directory can be read
	for name, tc := range map[string]struct {
		opts    Options
		unfit   []types.UID
		node    node
		dropped bool
	}{
		"it runs":                           {Options{ListPods: listing(nil, pod("a", runtime.SandboxReady))}, []types.UID{"a"}, node{}, false},
		"it has ended":                      {Options{ListPods: listing(nil, pod("a", runtime.SandboxNotReady))}, []types.UID{"a"}, withDirs(t, "a"), true},
		"another runs":                      {Options{ListPods: listing(nil, pod("b", runtime.SandboxReady))}, []types.UID{"a"}, withDirs(t, "a"), true},
		"any runs":                          {Options{ListPods: listing(nil, pod("b", runtime.SandboxReady))}, none, node{}, false},
		"none runs":                         {Options{ListPods: listing(nil)}, none, withDirs(t, "a"), true},
		"no answer, a directory":            {Options{ListPods: listing(bad)}, []types.UID{"a"}, withDirs(t, "a"), false},
		"no answer, no directory":           {Options{ListPods: listing(bad)}, []types.UID{"a"}, withDirs(t, "b"), true},
		"no answer, any directory":          {Options{ListPods: listing(bad)}, none, withDirs(t, "b"), false},
		"no answer, no directory at all":    {Options{ListPods: listing(bad)}, none, withDirs(t), true},
		"no answer, a disk that fails":      {Options{ListPods: listing(bad)}, none, unreadable, false},
		"no answer, and no root is known":   {Options{ListPods: listing(bad)}, none, node{}, false},
		"no runtime, and no root is known":  {Options{}, []types.UID{"a"}, node{}, false},
		"it runs, and a reset is requested": {Options{Reset: true, ListPods: listing(nil, pod("a", runtime.SandboxReady))}, []types.UID{"a"}, node{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			m := newManager(t, tc.node, tc.opts)
			m.problem, m.unfit = bad, tc.unfit
			assert.Equal(t, tc.dropped, m.Restore() == nil)
			problem, dropped := m.State()
			assert.Equal(t, bad, problem)
			assert.Equal(t, tc.dropped, dropped)
			assert.Equal(t, !tc.dropped && len(tc.unfit) == 0, m.Unknown())
			require.NoError(t, m.Save())
			_, err := os.Stat(m.path)
			assert.Equal(t, tc.dropped, err == nil, "the file stays as it is, or is replaced")
		})
	}
}

// While the record is suspended, pods that run go on and others are refused, until the pods have ended.
func TestSuspended(t *testing.T) {
	bad := errors.New("it does not fit")
	m := newManager(t, withDirs(t, "a", "b", "runs"), Options{}, "a", "b")
	m.problem, m.unfit = bad, []types.UID{"a"}
	require.ErrorIs(t, m.Restore(), bad)
	for uid, want := range map[types.UID]bool{"a": true, "b": true, "runs": true, "new": false} {
		goesOn, err := m.Admit(uid)
		assert.Equal(t, want, goesOn, uid)
		assert.Equal(t, !want, errors.Is(err, bad), uid)
		assert.Equal(t, want, m.GoesOn(uid), uid)
	}
	m.Ended("b")
	require.ErrorIs(t, m.Restore(), bad)
	m.Ended("a")
	require.NoError(t, m.Restore())
	assert.True(t, m.GoesOn("runs"), "it was given nothing")
	goesOn, err := m.Admit("new")
	require.NoError(t, err)
	assert.False(t, goesOn)
	require.NoError(t, m.Save())
	assert.FileExists(t, m.path)
}

// The file of a policy that is not used any more is removed when its pods have ended.
func TestLeave(t *testing.T) {
	m := newManager(t, withDirs(t, "a"), Options{Leave: true})
	require.NoError(t, os.WriteFile(m.path, []byte("a"), 0o600))
	m.problem, m.unfit = errors.New("the policy is none"), []types.UID{"a"}
	require.Error(t, m.Restore())
	require.NoError(t, m.Save())
	assert.FileExists(t, m.path)
	m.Ended("a")
	require.NoError(t, m.Save())
	assert.NoFileExists(t, m.path)
}

// A pod that is admitted while others look for pods that are gone keeps what it gets.
func TestAdmissionBesideReleases(t *testing.T) {
	for range 100 {
		m := newManager(t, withDirs(t), Options{}, "a") // without a directory
		require.NoError(t, m.Restore())
		var all sync.WaitGroup
		all.Go(m.ReleaseGone)
		all.Go(func() {
			_, err := m.Admit("a")
			assert.NoError(t, err)
			m.mu.Lock()
			defer m.mu.Unlock()
			m.holds["a"] = true
		})
		all.Wait()
		require.True(t, m.has("a"))
	}
}
