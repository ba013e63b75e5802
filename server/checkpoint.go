package server

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/server/internal/lookup"
)

// Checkpoint returns a handler of POST /checkpoint (KEP-2008). Its pattern has {namespace},
// {pod} and {container}. The parameter timeout is in seconds. The state of the container is
// written to a file in dir, which is kubelet's <root directory>/checkpoints, and the answer has
// its path. The directory is made with mode 0700, since the file has the memory of the
// container.
func Checkpoint(agent Agent, statuses Statuses, rt runtime.Checkpointer, dir string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		pod, container := lookup.Request(agent, req)
		switch {
		case pod == nil:
			writeError(w, http.StatusNotFound, "pod does not exist")
			return
		case container == nil:
			writeError(w, http.StatusNotFound, fmt.Sprintf("container %v does not exist", req.PathValue("container")))
			return
		}
		var timeout time.Duration
		if values := req.URL.Query()["timeout"]; len(values) > 0 { // the last one counts
			seconds, err := strconv.ParseInt(values[len(values)-1], 10, 64)
			if err != nil {
				writeError(w, http.StatusNotFound, "cannot parse value of timeout parameter") // kubelet's code
				return
			}
			timeout = time.Duration(min(seconds, int64(24*time.Hour/time.Second))) * time.Second
		}
		path := filepath.Join(dir, fmt.Sprintf("checkpoint-%s_%s-%s-%s.tar", pod.Name, pod.Namespace, container.Name, time.Now().Format(time.RFC3339)))
		err := func() error {
			if timeout < 0 {
				return fmt.Errorf("CheckpointContainer requires the timeout value to be > 0")
			}
			seen, _ := statuses.RuntimeStatus(pod.UID)
			instance := seen.Newest(container.Name)
			if instance == nil || instance.State != runtime.ContainerRunning {
				return fmt.Errorf("container %v not found", container.Name)
			}
			if err := os.MkdirAll(dir, 0o700); err != nil {
				return err
			}
			return rt.CheckpointContainer(req.Context(), instance.ID, path, timeout)
		}()
		if err != nil {
			writeError(w, http.StatusInternalServerError, fmt.Sprintf("checkpointing of %v/%v/%v failed (%v)", pod.Namespace, req.PathValue("pod"), container.Name, err))
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"items":[%q]}`, path)
	})
}
