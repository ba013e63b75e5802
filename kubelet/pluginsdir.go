package kubelet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/internal/safefile"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/check"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/host"
	"github.com/kubeletkit/kubeletkit/node/devices"
	"github.com/kubeletkit/kubeletkit/node/devices/plugin"
)

// pluginsDir is the directory of device plugins. A machine has one, whatever the root directories of its agents are,
// and it belongs to one of them: two would remove each other's socket, and release what the pods of the other have. An
// agent that does not have it runs on without device plugins, and its pods that request devices wait.
type pluginsDir struct {
	path string
	// earlier is where earlier versions of the agent had it, "" if that is the same.
	earlier string
	rootDir string // tells other agents which one has it
	log     logr.Logger
	reader  safefile.Reader

	mu   sync.Mutex
	file *os.File // the lock, nil: it is not locked
}

// maxDevices is the size of the largest checkpoint of devices that an earlier version has written, in bytes.
const maxDevices = 16 << 20

func (d *pluginsDir) checkpoint() string { return filepath.Join(d.path, devices.CheckpointName) }

// earlierCheckpoint returns the path of the checkpoint of devices of earlier versions of the agent, "" if there is
// none. The directory may be a link to that of now.
func earlierCheckpoint(earlier, now string) string {
	a, err := os.Stat(earlier)
	if b, missing := os.Stat(now); err != nil || missing == nil && os.SameFile(a, b) {
		return ""
	}
	return filepath.Join(earlier, devices.CheckpointName)
}

// lock makes the directory that of this agent, unless it is. The error names the other agent. The first time, the
// checkpoint of an earlier version is taken over.
func (d *pluginsDir) lock() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.file != nil {
		return nil
	}
	if err := os.MkdirAll(d.path, 0o750); err != nil {
		return fmt.Errorf("making the directory of device plugins: %w", err)
	}
	path := filepath.Join(d.path, ".kubeletkit.lock")
	file, err := safefile.Lock(path)
	if errors.Is(err, safefile.ErrLocked) {
		other, _ := d.reader.Read(path, 1<<12)
		return d.inUse("another agent (" + strings.TrimSpace(string(other)) + ")")
	}
	if err != nil {
		return fmt.Errorf("locking the directory of device plugins: %w", err)
	}
	if other := servedBy(filepath.Join(d.path, plugin.SocketName)); other != "" { // a kubelet locks nothing
		err = d.inUse(other)
	} else {
		err = d.adopt()
	}
	if err == nil {
		err = file.Truncate(0)
	}
	if err == nil {
		_, err = fmt.Fprintf(file, "process %d, root directory %s\n", os.Getpid(), d.rootDir)
	}
	if err != nil {
		safefile.Unlock(file)
		return err
	}
	d.file = file
	return nil
}

func (d *pluginsDir) inUse(other string) error {
	return fmt.Errorf(
		"the directory of device plugins, %s, is in use by %s: stop it, or give this agent one of its own "+
			"with --device-plugins-dir", d.path, other)
}

func (d *pluginsDir) unlock() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.file != nil {
		safefile.Unlock(d.file)
		d.file = nil
	}
}

// servedBy names the process that serves a socket, "" if none does.
func servedBy(socket string) string {
	conn, err := net.DialTimeout("unix", socket, time.Second)
	if err != nil {
		return ""
	}
	defer func() { _ = conn.Close() }()
	return "the " + host.Peer(conn) + " that serves " + filepath.Base(socket)
}

// adopt moves the checkpoint of an earlier version to its place, unless pods have devices in the one that is there.
func (d *pluginsDir) adopt() error {
	earlier := check.File{At: earlierCheckpoint(d.earlier, d.path)}
	if earlier.At == "" {
		return nil
	}
	now := check.File{At: d.checkpoint()}
	for _, f := range []*check.File{&earlier, &now} {
		var err error
		if f.Content, err = d.reader.Read(f.At, maxDevices); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("the checkpoint of devices: %w", err)
		}
	}
	if earlier.Content == nil {
		return nil
	}
	found := check.EarlierDevices(earlier, now)
	if found.Verdict != check.Kept {
		d.log.Info("The checkpoint of the devices of an earlier version is not used", "path", earlier.At,
			"used", now.At, "reason", found.Why)
		return nil
	}
	err := safefile.WriteSync(now.At, earlier.Content)
	if err == nil {
		err = safefile.SyncDir(d.path)
	}
	if err == nil {
		err = os.Remove(earlier.At) // else it would come back when no pod has devices in the other one
	}
	if err != nil {
		return fmt.Errorf("moving the checkpoint of devices from %s to %s: %w", earlier.At, now.At, err)
	}
	d.log.Info("The checkpoint of the devices of an earlier version has moved", "from", earlier.At, "to", now.At)
	return nil
}

// pluginServer is a [plugin.Server] that serves while the directory is that of this agent.
type pluginServer struct {
	*plugin.Server
	dir *pluginsDir
	log logr.Logger

	mu     sync.Mutex
	failed error // of the lock
}

// locking is the back-off of a directory that is in use.
var locking = flow.Backoff{Min: time.Second, Max: time.Minute}

// Run implements [lifecycle.Runner].
func (s *pluginServer) Run(ctx context.Context) error {
	locking.Repeat(ctx, s.dir.lock, func(err error, retryIn time.Duration) {
		s.log.Error(err, "Device plugins cannot register; trying again", "retryIn", retryIn)
		s.setFailed(err)
	})
	s.setFailed(nil)
	if ctx.Err() != nil {
		return nil
	}
	return s.Server.Run(ctx)
}

func (s *pluginServer) setFailed(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = err
}

// Healthy is that of the server, which does not run without the directory.
func (s *pluginServer) Healthy() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed != nil {
		return s.failed
	}
	return s.Server.Healthy()
}
