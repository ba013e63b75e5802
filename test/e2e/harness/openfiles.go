package harness

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// OpenFiles returns what the descriptors of the agent's process stand for, in order: files,
// sockets, pipes, watches.
func (a *Agent) OpenFiles(t testing.TB) []string {
	t.Helper()
	a.client.CloseIdleConnections() // which would be its sockets
	dir := fmt.Sprintf("/proc/%d/fd", a.process.cmd.Process.Pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var open []string
	for _, e := range entries {
		if to, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil { // else it was closed meanwhile
			open = append(open, to)
		}
	}
	slices.Sort(open)
	return open
}
