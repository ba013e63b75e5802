package plugins

import (
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"

	"github.com/kubeletkit/kubeletkit/internal/flow"
)

// Sockets come, go and are created again while registrations succeed and fail: actions of one path never overlap, a
// plugin is deregistered once, and when nothing happens any more, the plugins of all sockets are registered, and no
// others.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := time.Unix(0, 0)
		s := newSockets(flow.Backoff{Min: time.Second, Max: 8 * time.Second})
		s.limit = rapid.IntRange(1, 3).Draw(t, "limit")
		there := map[string]uint64{}      // the sockets
		known := map[string]uint64{}      // those of the last scan
		busy := map[string]actionKind{}   // what is under way
		started := map[string]uint64{}    // the socket of the registration under way or of the plugin
		registered := map[string]uint64{} // the plugins
		last := uint64(0)
		apply := func(actions []action) {
			for _, a := range actions {
				kind, is := busy[a.path]
				switch a.kind {
				case cancel:
					if !is || kind == register && started[a.path] == known[a.path] {
						t.Fatalf("%s: nothing to cancel", a.path)
					}
					continue
				case register:
					if registered[a.path] != 0 || known[a.path] == 0 {
						t.Fatalf("%s: registered %d, there is %d", a.path, registered[a.path], known[a.path])
					}
					started[a.path] = known[a.path]
				case deregister:
					if registered[a.path] == 0 || registered[a.path] == known[a.path] {
						t.Fatalf("%s: deregistered without need", a.path)
					}
					delete(registered, a.path)
				}
				if is {
					t.Fatalf("%s: two actions at once", a.path)
				}
				busy[a.path] = a.kind
			}
			registering := 0
			for _, kind := range busy {
				if kind == register {
					registering++
				}
			}
			if registering > s.limit {
				t.Fatalf("%d registrations at once", registering)
			}
		}
		scan := func() {
			known = maps.Clone(there)
			apply(s.found(now, known))
		}
		finish := func(path string, err error) {
			kind := busy[path]
			delete(busy, path)
			var plugin *Plugin
			if kind == register && err == nil {
				plugin = &Plugin{Name: path}
				registered[path] = started[path]
			} else if kind == deregister {
				err = nil
			}
			apply(s.done(now, path, plugin, err))
		}
		paths := rapid.SampledFrom([]string{"a", "b", "c"})
		t.Repeat(map[string]func(*rapid.T){
			"create": func(t *rapid.T) { last++; there[paths.Draw(t, "path")] = last },
			"remove": func(t *rapid.T) { delete(there, paths.Draw(t, "path")) },
			"scan":   func(*rapid.T) { scan() },
			"time": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(1, 9).Draw(t, "seconds")) * time.Second)
				apply(s.due(now))
			},
			"finish": func(t *rapid.T) {
				path := paths.Draw(t, "path")
				if _, ok := busy[path]; ok {
					finish(path, map[bool]error{true: errors.New("no")}[rapid.Bool().Draw(t, "fails")])
				}
			},
		})
		scan()
		for len(busy) > 0 || s.wait(now) > 0 {
			for path := range maps.Clone(busy) {
				finish(path, nil)
			}
			now = now.Add(s.wait(now))
			apply(s.due(now))
		}
		if !maps.Equal(there, registered) {
			t.Fatalf("sockets %v, registered %v", there, registered)
		}
		if len(s.byPath) != len(there) {
			t.Fatalf("%d paths are kept of %d", len(s.byPath), len(there))
		}
	})
}

func TestBackoff(t *testing.T) {
	s := newSockets(flow.Backoff{Min: minBackoff, Max: maxBackoff})
	now := time.Unix(0, 0)
	actions := s.found(now, map[string]uint64{"a": 1})
	var waits []time.Duration
	for range 11 {
		assert.Equal(t, []action{{kind: register, path: "a"}}, actions)
		assert.Empty(t, s.done(now, "a", nil, errors.New("no")))
		waits = append(waits, s.wait(now))
		now = now.Add(s.wait(now))
		actions = s.due(now)
	}
	assert.Equal(t, []time.Duration{
		500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second,
		32 * time.Second, 64 * time.Second,
		122 * time.Second, 122 * time.Second, 122 * time.Second,
	}, waits, "as exponentialbackoff of kubelet")
	// A socket that was created again does not wait.
	s.done(now, "a", nil, errors.New("no"))
	assert.Equal(t, []action{{kind: register, path: "a"}}, s.found(now, map[string]uint64{"a": 2}))
}
