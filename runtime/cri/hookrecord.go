package cri

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/kubeletkit/kubeletkit/internal/safefile"
)

// A hook record is a file in the directory of the pod with the ID of a container
// instance. It is about that instance only, so it becomes void with the next one. It lets
// the next agent know about hooks what CRI has no place for: the annotations of a
// container are fixed when it is created.
const (
	// postStartOwed: the postStart hook has not ended yet. It is written before the
	// container is started.
	postStartOwed = "post-start-owed."
	// preStopDone: the preStop hook has ended.
	preStopDone = "pre-stop-done."
)

// maxHookRecord is the limit for reading a record, in bytes. IDs have 64.
const maxHookRecord = 4096

// recordHook records the hook of an instance. Without a directory it does nothing. If it
// fails, it is logged: a hook may then be lost, or run twice, if the agent is restarted.
func (r *Runtime) recordHook(dir, kind, container, id string) {
	if dir == "" {
		return
	}
	path := filepath.Join(dir, kind+container)
	if err := safefile.Write(path, []byte(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.opts.Logger.Error(err, "Progress of a hook cannot be recorded", "container", container, "path", path)
	}
}

// hookRecorded reports whether there is a record for the instance.
func hookRecorded(dir, kind, container, id string) bool {
	if dir == "" {
		return false
	}
	raw, err := safefile.ReadFile(filepath.Join(dir, kind+container), maxHookRecord)
	return err == nil && string(raw) == id
}

// dropHook removes a record. An error is ignored: the hook runs once more at worst.
func dropHook(dir, kind, container string) {
	if dir != "" {
		_ = os.Remove(filepath.Join(dir, kind+container))
	}
}
