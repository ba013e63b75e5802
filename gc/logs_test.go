package gc_test

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/gc"
	"github.com/kubeletkit/kubeletkit/runtime"
)

func TestLogDirectories(t *testing.T) {
	logs := t.TempDir()
	for _, d := range []string{"ns_gone_u1", "ns_alive_u2", "ns_stopping_u3", "ns_underscores_u_4_", "ns_alive_u_5",
		"lost+found", "a_b"} {
		require.NoError(t, os.MkdirAll(filepath.Join(logs, d, "main"), 0o755))
	}
	stopping := gonePod("u3")
	stopping.Containers[0].State = running
	gone := map[types.UID]bool{"u1": true, "u3": true, "u_4_": true, "4_": true, "5": true}
	c, err := gc.New(&holder{pods: []*runtime.Pod{stopping}}, func(uid types.UID) bool { return gone[uid] },
		gc.Options{LogsDir: logs})
	require.NoError(t, err)
	require.NoError(t, c.Collect(t.Context()))
	entries, err := os.ReadDir(logs)
	require.NoError(t, err)
	var left []string
	for _, e := range entries {
		left = append(left, e.Name())
	}
	assert.Equal(t, []string{"a_b", "lost+found", "ns_alive_u2", "ns_alive_u_5", "ns_stopping_u3"}, left)
}

// Log shippers read the logs of a pod to their end after the pod is gone.
func TestLogsAreKeptForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logs := t.TempDir()
		path := func(uid string) string { return filepath.Join(logs, "ns_pod-"+uid+"_"+uid) }
		h := &holder{}
		add := func(uid string) {
			require.NoError(t, os.MkdirAll(path(uid), 0o755))
			h.mu.Lock()
			h.pods = append(h.pods, gonePod(uid))
			h.mu.Unlock()
		}
		var mu sync.Mutex
		back := false
		gone := func(uid types.UID) bool {
			mu.Lock()
			defer mu.Unlock()
			return uid != "u3" || !back
		}
		c, err := gc.New(h, gone, gc.Options{
			Policy: gc.Policy{KeepLogs: 30 * time.Second}, LogsDir: logs, Period: time.Hour,
		})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- c.Run(ctx) }()
		add("u1")
		c.Kick()
		synctest.Wait()
		h.mu.Lock()
		assert.Equal(t, []string{"s-u1"}, h.removed, "its containers do not wait, and their logs stay")
		h.pods = nil
		h.mu.Unlock()
		time.Sleep(10 * time.Second)
		add("u2")
		add("u3")
		c.Kick()
		time.Sleep(19 * time.Second)
		assert.DirExists(t, path("u1"))
		time.Sleep(2 * time.Second)
		assert.NoDirExists(t, path("u1"), "after 30 s, also while nothing happens")
		assert.DirExists(t, path("u2"))
		mu.Lock()
		back = true
		mu.Unlock()
		time.Sleep(10 * time.Second)
		assert.NoDirExists(t, path("u2"))
		assert.DirExists(t, path("u3"), "its pod has come back")
		listed := h.listed()
		time.Sleep(59 * time.Minute)
		assert.Equal(t, listed, h.listed(), "and nothing else is due")
		cancel()
		assert.NoError(t, <-ended)
	})
}

func TestLinksToLogsOfGonePods(t *testing.T) {
	logs, links := t.TempDir(), filepath.Join(t.TempDir(), "containers")
	gone := map[types.UID]bool{"u1": true}
	c, err := gc.New(&holder{}, func(uid types.UID) bool { return gone[uid] },
		gc.Options{LogsDir: logs, LogLinksDir: links})
	require.NoError(t, err)
	require.NoError(t, c.Collect(t.Context()), "there are no links yet")
	require.NoError(t, os.Mkdir(links, 0o755))
	for name, target := range map[string]string{
		"gone": logs + "/ns_gone_u1/main/0.log", "alive": logs + "/ns_alive_u2/main/0.log", "rotated": logs + "/ns_alive_u2/main/1.log",
		"foreign": "/nowhere/ns_gone_u1/main/0.log", "odd": logs + "/x/0.log",
	} {
		require.NoError(t, os.Symlink(target, filepath.Join(links, name)))
	}
	require.NoError(t, os.WriteFile(filepath.Join(links, "file"), nil, 0o600))
	for _, d := range []string{"ns_gone_u1", "ns_alive_u2"} {
		require.NoError(t, os.MkdirAll(filepath.Join(logs, d, "main"), 0o755))
	}
	require.NoError(t, os.WriteFile(logs+"/ns_alive_u2/main/0.log", nil, 0o600))
	left := func(c *gc.ContainerGC) (names []string) {
		t.Helper()
		require.NoError(t, c.Collect(t.Context()))
		entries, err := os.ReadDir(links)
		require.NoError(t, err)
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	assert.Equal(t, []string{"alive", "file", "foreign", "odd", "rotated"}, left(c))

	// What an earlier agent has left behind is removed by the first collection.
	require.NoError(t, os.Symlink(logs+"/ns_gone_u1/main/0.log", filepath.Join(links, "gone")))
	assert.Contains(t, left(c), "gone", "nothing is looked for when nothing has gone")
	c, err = gc.New(&holder{}, func(uid types.UID) bool { return gone[uid] },
		gc.Options{LogsDir: logs, LogLinksDir: links})
	require.NoError(t, err)
	assert.NotContains(t, left(c), "gone")
}
