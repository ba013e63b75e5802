package shutdown

import (
	"encoding/json"
	"errors"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/kubeletkit/kubeletkit/internal/safefile"
)

// stateFile is kubelet's file with the times of the latest shutdown.
const stateFile = "graceful_node_shutdown_state"

// maxState bounds the file.
const maxState = 4096

// state is the content of the file.
type state struct {
	StartTime time.Time `json:"startTime"`
	EndTime   time.Time `json:"endTime"`
}

// loadState measures the times of the shutdown before.
func (m *Manager) loadState() {
	if m.opts.StateDir == "" {
		return
	}
	path := filepath.Join(m.opts.StateDir, stateFile)
	var s state
	data, err := safefile.ReadFile(path, maxState)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err == nil {
		err = json.Unmarshal(data, &s)
	}
	if err != nil {
		m.log.Error(err, "Times of the last shutdown cannot be read", "path", path)
		return
	}
	m.node.Measure(Shutdown{s.StartTime, s.EndTime})
}

// storeState writes and measures the times of a shutdown.
func (m *Manager) storeState(s state) {
	m.node.Measure(Shutdown{s.StartTime, s.EndTime})
	if m.opts.StateDir == "" {
		return
	}
	data, err := json.Marshal(s)
	if err == nil {
		err = safefile.WriteSync(filepath.Join(m.opts.StateDir, stateFile), data)
	}
	if err == nil {
		err = safefile.SyncDir(m.opts.StateDir)
	}
	if err != nil {
		m.log.Error(err, "Times of the shutdown cannot be written", "path", filepath.Join(m.opts.StateDir, stateFile))
	}
}
