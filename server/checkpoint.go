package server

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Checkpoint returns a handler of POST /checkpoint (KEP-2008). Its pattern has {namespace},
// {pod} and {container}. The parameter timeout is in seconds. The state of the container is
// written to a file in dir, which is kubelet's <root directory>/checkpoints, and the answer has
// its path. The directory is made with mode 0700, since the file has the memory of the
// container.
func Checkpoint(agent Agent, statuses Statuses, rt runtime.Checkpointer, dir string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		pod, container, ok := find(agent, w, req, "pod does not exist", fmt.Sprintf("container %v does not exist", req.PathValue("container")))
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
		path := filepath.Join(dir, fmt.Sprintf("checkpoint-%s_%s-%s-%s.tar", pod.Name, pod.Namespace, container, time.Now().Format(time.RFC3339)))
		err := func() error {
			if timeout < 0 {
				return errors.New("CheckpointContainer requires the timeout value to be > 0")
			}
			seen, _ := statuses.RuntimeStatus(pod.UID)
			instance := seen.Newest(container)
			if instance == nil || instance.State != runtime.ContainerRunning {
				return fmt.Errorf("container %v not found", container)
			}
			if err := os.MkdirAll(dir, 0o700); err != nil {
				return err
			}
			return rt.CheckpointContainer(req.Context(), instance.ID, path, timeout)
		}()
		if err != nil {
			writeError(w, http.StatusInternalServerError, fmt.Sprintf("checkpointing of %v/%v/%v failed (%v)", pod.Namespace, req.PathValue("pod"), container, err))
			return
		}
		writeJSON(w, map[string][]string{"items": {path}})
	})
}
