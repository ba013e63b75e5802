package server

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Checkpoint returns a handler of POST /checkpoint (KEP-2008). Its pattern has {namespace},
// {pod} and {container}. The parameter timeout is in seconds. The state of the container is
// written to a new file in dir, which is kubelet's <root directory>/checkpoints, and the answer has
// its path. The directory is made with mode 0700, since the file has the memory of the
// container. A container has one checkpoint at a time; a second request fails meanwhile. The file
// of a checkpoint that fails is removed. Otherwise files stay until the administrator removes them.
func Checkpoint(agent Agent, rt runtime.Checkpointer, dir string) http.Handler {
	under := &checkpoints{of: make(map[runtime.ContainerID]bool)}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		pod, container, ok := find(agent, w, req, "pod does not exist", fmt.Sprintf("container %v does not exist",
			req.PathValue("container")))
		if !ok {
			return
		}
		var timeout time.Duration
		if values := req.URL.Query()["timeout"]; len(values) > 0 { // the last one counts
			seconds, err := strconv.ParseInt(values[len(values)-1], 10, 64)
			if err != nil {
				writeError(w, http.StatusNotFound, "cannot parse value of timeout parameter") // kubelet's code
				return
			}
			timeout = time.Duration(max(-1, min(seconds, int64(24*time.Hour/time.Second)))) * time.Second
		}
		path, err := func() (string, error) {
			if timeout < 0 {
				return "", errors.New("CheckpointContainer requires the timeout value to be > 0")
			}
			seen, _ := agent.RuntimeStatus(pod.UID)
			instance := seen.Newest(container)
			if instance == nil || instance.State != runtime.ContainerRunning {
				return "", fmt.Errorf("container %v not found", container)
			}
			if err := os.MkdirAll(dir, 0o700); err != nil {
				return "", err
			}
			path, err := under.begin(instance.ID,
				filepath.Join(dir, fmt.Sprintf("checkpoint-%s_%s-%s-", pod.Name, pod.Namespace, container)))
			if err != nil {
				return "", err
			}
			defer under.end(instance.ID)
			if err := rt.CheckpointContainer(req.Context(), instance.ID, path, timeout); err != nil {
				_ = os.Remove(path) // a part of it may be there
				return "", err
			}
			return path, nil
		}()
		if err != nil {
			writeError(w, http.StatusInternalServerError, fmt.Sprintf("checkpointing of %v/%v/%v failed (%v)",
				pod.Namespace, req.PathValue("pod"), container, err))
			return
		}
		writeJSON(w, map[string][]string{"items": {path}})
	})
}

// checkpoints are those that are under way.
type checkpoints struct {
	mu   sync.Mutex
	of   map[runtime.ContainerID]bool
	last time.Time // in the name of the last one
}

// begin returns the path of a new checkpoint of the container: the prefix, the time and ".tar". No
// two paths are equal. Kubelet's have a precision of a second, and those of "a-b" of "c" can be
// those of "a" of "b-c". A runtime may write to a path for some time after its client has left.
func (c *checkpoints) begin(id runtime.ContainerID, prefix string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of[id] {
		return "", errors.New("another checkpoint of the container is under way")
	}
	c.of[id] = true
	now := time.Now()
	if !now.After(c.last) {
		now = c.last.Add(1)
	}
	c.last = now
	return prefix + now.Format("2006-01-02T15:04:05.000000000Z07:00") + ".tar", nil
}

// end is called when the runtime has returned.
func (c *checkpoints) end(id runtime.ContainerID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.of, id)
}
