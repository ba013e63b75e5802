package plugins

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/kubeletkit/kubeletkit/internal/fswatch"
	"github.com/kubeletkit/kubeletkit/node/internal/goroutines"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// recorder is a handler that keeps what it was called with.
type recorder struct {
	mu       sync.Mutex
	calls    []string
	validate func(Plugin) error
	register func(context.Context, Plugin) error
}

func (r *recorder) add(call string, p Plugin) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, call+" "+p.Name)
}

// took returns the calls since the last one.
func (r *recorder) took() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	calls := r.calls
	r.calls = nil
	return calls
}

func (r *recorder) Validate(p Plugin) error {
	if r.validate != nil {
		return r.validate(p)
	}
	return nil
}

func (r *recorder) Register(ctx context.Context, p Plugin) error {
	r.add("register", p)
	if r.register != nil {
		return r.register(ctx, p)
	}
	return nil
}

func (r *recorder) Deregister(p Plugin) { r.add("deregister", p) }

// plugin serves a registration.
type plugin struct {
	registerapi.UnimplementedRegistrationServer
	info     registerapi.PluginInfo
	statuses chan string
}

func (p *plugin) GetInfo(context.Context, *registerapi.InfoRequest) (*registerapi.PluginInfo, error) {
	return &p.info, nil
}

func (p *plugin) NotifyRegistrationStatus(_ context.Context,
	s *registerapi.RegistrationStatus) (*registerapi.RegistrationStatusResponse, error) {
	p.statuses <- fmt.Sprintf("%v %s", s.PluginRegistered, s.Error)
	return &registerapi.RegistrationStatusResponse{}, nil
}

// serve serves a plugin at a socket, until the function is called or the test ends.
func serve(t *testing.T, socket, kind, name string) (p *plugin, stop func()) {
	t.Helper()
	p = &plugin{info: registerapi.PluginInfo{Type: kind, Name: name, SupportedVersions: []string{"v1"}},
		statuses: make(chan string, 10)}
	require.NoError(t, os.MkdirAll(filepath.Dir(socket), 0o755))
	listener, err := net.Listen("unix", socket)
	require.NoError(t, err)
	server := grpc.NewServer()
	registerapi.RegisterRegistrationServer(server, p)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	stop = sync.OnceFunc(func() { server.Stop(); <-ended })
	t.Cleanup(stop)
	return p, stop
}

// Plugins at real sockets: one that was there before, one in a new directory, one that is restarted, one of an unknown
// type.
func TestSockets(t *testing.T) {
	dir, err := os.MkdirTemp("", "plugins") // the path of a socket is short
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	registry := filepath.Join(dir, "registry")
	handler := &recorder{}
	m, err := New(registry, map[string]Handler{"Test": handler}, Options{})
	require.NoError(t, err)
	early, _ := serve(t, filepath.Join(registry, "early.sock"), "Test", "early")
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	assert.Equal(t, "true ", <-early.statuses)
	assert.Equal(t, []string{"register early"}, handler.took())

	nested := filepath.Join(registry, "vendor.com", "v1", "gpu.sock")
	gpu, die := serve(t, nested, "Test", "gpu")
	assert.Equal(t, "true ", <-gpu.statuses)
	require.Eventually(t, func() bool { return len(m.Plugins()) == 2 }, time.Minute, time.Millisecond)
	assert.Equal(t, Plugin{Type: "Test", Name: "gpu", Endpoint: nested, Versions: []string{"v1"}, Socket: nested},
		m.Plugins()[1])

	die()
	gpu, die = serve(t, nested, "Test", "gpu")
	assert.Equal(t, "true ", <-gpu.statuses)
	assert.Equal(t, []string{"register gpu", "deregister gpu", "register gpu"}, handler.took())
	require.Eventually(t, func() bool { return len(m.Plugins()) == 2 }, time.Minute, time.Millisecond,
		"the answer of the plugin arrives")

	unknown, _ := serve(t, filepath.Join(registry, "unknown.sock"), "Other", "other")
	assert.Equal(t, `false no handler registered for plugin type "Other"`, <-unknown.statuses)
	assert.Equal(t, []string{filepath.Join(registry, "early.sock"), filepath.Join(registry, "unknown.sock"), nested},
		m.Sockets())
	_, _ = serve(t, filepath.Join(registry, ".hidden.sock"), "Test", "hidden")
	require.NoError(t, os.WriteFile(filepath.Join(registry, "file.sock"), nil, 0o644))

	die()
	require.Eventually(t, func() bool { return len(m.Plugins()) == 1 }, time.Minute, time.Millisecond)
	assert.Equal(t, []string{"deregister gpu"}, handler.took())

	// The registry itself is made again.
	require.NoError(t, os.RemoveAll(registry))
	require.Eventually(t, func() bool { return len(m.Plugins()) == 0 }, time.Minute, time.Millisecond)
	require.Eventually(t, func() bool { _, err := os.Stat(registry); return err == nil }, time.Minute, time.Millisecond)
	late, _ := serve(t, filepath.Join(registry, "late.sock"), "Test", "late")
	assert.Equal(t, "true ", <-late.statuses)
	stop()
	require.NoError(t, <-ended)
	assert.ErrorIs(t, m.Run(t.Context()), runtime.ErrAlreadyRunning)
	assert.Equal(t, []string{"deregister early", "register late"}, handler.took(),
		"the end of the manager deregisters nothing")
}

// script is a plugin without a socket.
type script struct {
	kind   string
	info   func(context.Context) error
	notify func(context.Context, *registerapi.RegistrationStatus) error
	told   []string
}

func (s *script) GetInfo(ctx context.Context, _ *registerapi.InfoRequest,
	_ ...grpc.CallOption) (*registerapi.PluginInfo, error) {
	if s.info != nil {
		if err := s.info(ctx); err != nil {
			return nil, err
		}
	}
	return &registerapi.PluginInfo{Type: s.kind, Name: "name", Endpoint: "/endpoint"}, nil
}

func (s *script) NotifyRegistrationStatus(ctx context.Context, st *registerapi.RegistrationStatus,
	_ ...grpc.CallOption) (*registerapi.RegistrationStatusResponse, error) {
	s.told = append(s.told, st.Error)
	if s.notify != nil {
		return nil, s.notify(ctx, st)
	}
	return nil, nil
}

func (s *script) Close() error { return nil }

// rig is a manager in virtual time. Its sockets are files that serve nothing.
type rig struct {
	*testing.T
	dir     string
	handler *recorder
	script  *script
	changed chan fswatch.Changes
	m       *Manager
}

// inVirtualTime runs a test with a manager that runs and one socket.
func inVirtualTime(t *testing.T, prepare, test func(r *rig)) {
	dir, err := os.MkdirTemp("", "plugins")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	synctest.Test(t, func(t *testing.T) {
		r := &rig{T: t, dir: dir, handler: &recorder{}, script: &script{kind: "Test"},
			changed: make(chan fswatch.Changes, 1)}
		r.m, err = New(dir, map[string]Handler{"Test": r.handler}, Options{})
		require.NoError(t, err)
		r.m.watch = func() (watcher, error) { return r, nil }
		r.m.dial = func(context.Context, string) (registration, error) { return r.script, nil }
		prepare(r)
		r.create()
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- r.m.Run(ctx) }()
		synctest.Wait()
		test(r)
		stop()
		require.NoError(t, <-ended)
	})
}

// Add, Changes and Close implement watcher.
func (r *rig) Add(string) error                { return nil }
func (r *rig) Changes() <-chan fswatch.Changes { return r.changed }
func (r *rig) Close()                          {}

func (r *rig) create() {
	deadSocket(r, filepath.Join(r.dir, "a.sock"))
}

func (r *rig) remove() { require.NoError(r, os.Remove(filepath.Join(r.dir, "a.sock"))) }

// after lets time pass after a change of the registry.
func (r *rig) after(d time.Duration) {
	select {
	case r.changed <- fswatch.Changes{Ops: map[string]fswatch.Op{"a.sock": fswatch.Create}}:
	default:
	}
	time.Sleep(d)
	synctest.Wait()
}

func TestRegistrationFails(t *testing.T) {
	fails := errors.New("it fails")
	for name, c := range map[string]struct {
		prepare func(r *rig)
		told    string   // to the plugin, "" for nothing or success
		calls   []string // of the handler
	}{
		"no answer":      {func(r *rig) { r.script.info = func(context.Context) error { return fails } }, "", nil},
		"hangs":          {func(r *rig) { r.script.info = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() } }, "", nil},
		"unknown type":   {func(r *rig) { r.script.kind = "Other" }, `no handler registered for plugin type "Other"`, nil},
		"validation":     {func(r *rig) { r.handler.validate = func(Plugin) error { return fails } }, "plugin validation failed: it fails", nil},
		"handler":        {func(r *rig) { r.handler.register = func(context.Context, Plugin) error { return fails } }, "plugin registration failed: it fails", []string{"register name"}},
		"handler panics": {func(r *rig) { r.handler.register = func(context.Context, Plugin) error { panic("!") } }, "plugin registration failed: panic: !", []string{"register name"}},
		"the plugin is off": {func(r *rig) {
			r.script.notify = func(context.Context, *registerapi.RegistrationStatus) error { return fails }
		}, "", []string{"register name", "deregister name"}},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, c.prepare, func(r *rig) {
				r.after(11 * time.Second)
				assert.Empty(r, r.m.Plugins())
				calls := r.handler.took()
				assert.Subset(r, append(c.calls, ""), append(calls, ""))
				assert.GreaterOrEqual(r, len(calls), len(c.calls), calls)
				if c.told != "" {
					require.NotEmpty(r, r.script.told)
					assert.Equal(r, c.told, r.script.told[0])
				}
				// It is repaired.
				*r.script = script{kind: "Test"}
				r.handler.validate, r.handler.register = nil, nil
				r.after(3 * time.Minute)
				assert.Len(r, r.m.Plugins(), 1)
			})
		})
	}
}

// A plugin that is removed while it is registered: the call ends.
func TestSocketIsRemovedMeanwhile(t *testing.T) {
	ended := false
	inVirtualTime(t, func(r *rig) {
		r.handler.register = func(ctx context.Context, _ Plugin) error {
			<-ctx.Done()
			ended = true
			return nil
		}
	}, func(r *rig) {
		r.after(time.Hour)
		r.remove()
		r.after(time.Second)
		assert.True(r, ended)
		assert.Equal(r, []string{"register name", "deregister name"}, r.handler.took())
		r.handler.register = nil
		r.create()
		r.after(time.Second)
		assert.Equal(r, []string{"register name"}, r.handler.took())
	})
}

// Without inotify the registry is read every 10 s.
func TestKernelThatRefuses(t *testing.T) {
	inVirtualTime(t, func(r *rig) {
		r.m.watch = func() (watcher, error) { return (*fswatch.Watcher)(nil), errors.New("no instance is left") }
	}, func(r *rig) {
		assert.Equal(r, []string{"register name"}, r.handler.took())
		r.remove()
		r.create()
		time.Sleep(unwatched)
		synctest.Wait()
		assert.Equal(r, []string{"deregister name", "register name"}, r.handler.took())
	})
}

// Without a plugin there is one goroutine, beside those of packages fswatch and fsnotify.
func TestGoroutines(t *testing.T) {
	inVirtualTime(t, func(*rig) {}, func(r *rig) {
		assert.Len(r, r.m.Plugins(), 1)
		assert.Len(r, goroutines.In("node/plugins"), 1, "a plugin that is registered has none")
		r.remove()
		r.after(time.Second)
		assert.Len(r, goroutines.In("node/plugins"), 1)
	})
	m, err := New(filepath.Join(t.TempDir(), "registry"), nil, Options{})
	require.NoError(t, err)
	watched := make(chan struct{})
	m.watch = func() (watcher, error) {
		w, err := fswatch.Open()
		once := sync.OnceFunc(func() { close(watched) })
		if err != nil {
			once()
		}
		return added{w, once}, err
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	<-watched
	assert.Eventually(t, func() bool {
		return len(goroutines.In("node/plugins")) == 1 && len(goroutines.In("fsnotify/fsnotify@")) == 1 &&
			len(goroutines.In("internal/fswatch")) == 1
	}, time.Minute, time.Millisecond)
	stop()
	require.NoError(t, <-ended)
}

// added is a watcher that calls done when a directory was added.
type added struct {
	watcher
	done func()
}

func (a added) Add(dir string) error { defer a.done(); return a.watcher.Add(dir) }

// A directory of plugins that is moved away and back.
func TestDirectoryThatIsMoved(t *testing.T) {
	dir, err := os.MkdirTemp("", "plugins")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	handler := &recorder{}
	m, err := New(filepath.Join(dir, "registry"), map[string]Handler{"Test": handler}, Options{})
	require.NoError(t, err)
	inside, outside := filepath.Join(dir, "registry", "vendor"), filepath.Join(dir, "outside")
	p, _ := serve(t, filepath.Join(inside, "gpu.sock"), "Test", "gpu")
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	for range 3 {
		assert.Equal(t, "true ", <-p.statuses)
		require.Eventually(t, func() bool { return len(m.Plugins()) == 1 }, time.Minute, time.Millisecond,
			"the answer of the plugin arrives")
		require.NoError(t, os.Rename(inside, outside))
		require.Eventually(t, func() bool { return len(m.Plugins()) == 0 }, time.Minute, time.Millisecond)
		require.NoError(t, os.Rename(outside, inside))
	}
	assert.Equal(t, "true ", <-p.statuses)
	stop()
	require.NoError(t, <-ended)
	assert.Equal(t, []string{"register gpu", "deregister gpu", "register gpu", "deregister gpu", "register gpu",
		"deregister gpu", "register gpu"}, handler.took())
}

func TestNew(t *testing.T) {
	_, err := New("", map[string]Handler{"": &recorder{}, "b": nil}, Options{CallTimeout: -1})
	assert.EqualError(t, err, `plugins: the directory is empty
the handler of type "" is nil, or the type is empty
the handler of type "b" is nil, or the type is empty
a timeout of -1ns is negative`)
}
