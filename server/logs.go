package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/logging"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// ContainerLogs returns a handler of GET /containerLogs. Its pattern has {namespace}, {pod}
// and {container}, and it may have {uid}. The handler is safe for concurrent use; it runs a
// goroutine while at least one client follows a log.
func ContainerLogs(agent Agent, opts Options) http.Handler {
	opts.Logger = logging.OrDefault(opts.Logger)
	return &containerLogs{agent: agent, watch: newLogWatch(opts.Logger), log: opts.Logger}
}

type containerLogs struct {
	agent Agent
	watch *logWatch
	log   logr.Logger
}

func (h *containerLogs) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	opts, err := parseLogOptions(req.URL.Query(), time.Now())
	switch {
	case errors.Is(err, errInvalid):
		writeError(w, http.StatusUnprocessableEntity, err.Error())
		return
	case err != nil:
		writeError(w, http.StatusBadRequest, err.Error())
		return
	}
	name := req.PathValue("pod")
	pod, container, ok := find(h.agent, w, req, fmt.Sprintf("pod %q does not exist", name),
		fmt.Sprintf("container %q not found in pod %q", req.PathValue("container"), name))
	if !ok {
		return
	}
	seen, _ := h.agent.RuntimeStatus(pod.UID)
	instance, err := chooseInstance(pod, seen, container, opts.previous)
	if err != nil {
		writeError(w, http.StatusBadRequest, err.Error())
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	flush := http.NewResponseController(w)
	out := newLineWriter(w, func() { _ = flush.Flush() }, opts)
	s := &logStream{containerLogs: h, pod: pod, container: container, out: out, opts: opts}
	if err := s.run(req.Context(), instance); err != nil {
		if !out.began && !errors.Is(err, errReaderGone) {
			writeError(w, http.StatusBadRequest, err.Error())
			return
		}
		h.log.V(1).Info("A log was not sent completely", "pod", runtime.RefOf(pod), "container", container,
			"reason", err.Error())
		if !errors.Is(err, errReaderGone) && !errors.Is(err, context.Canceled) {
			_ = out.send()
			panic(http.ErrAbortHandler) // closes the connection, so that the client sees an error
		}
	}
}

// chooseInstance returns the instance whose log is sent. The choice and the texts of the
// errors are kubelet's.
func chooseInstance(pod *v1.Pod, seen *runtime.PodStatus, container string,
	previous bool) (*runtime.ContainerStatus, error) {
	text, err := loggedInstance(pod, container, previous)
	if err != nil {
		// The runtime may have started it a moment before its status shows that.
		if newest := seen.Newest(container); !previous && newest != nil && newest.State != runtime.ContainerCreated &&
			newest.LogPath != "" {
			return newest, nil
		}
		return nil, err
	}
	var instance *runtime.ContainerStatus
	if id, err := runtime.ParseContainerID(text); err == nil {
		instance = seen.ByID(id)
	}
	switch {
	case instance == nil:
		return nil, fmt.Errorf("unable to retrieve container logs for %s", text)
	case instance.LogPath == "":
		return nil, fmt.Errorf("the runtime does not report the log file of container %q in pod %q",
			container, pod.Name)
	}
	return instance, nil
}

// loggedInstance returns the ID of the instance that the status of the pod names.
func loggedInstance(pod *v1.Pod, container string, previous bool) (id string, err error) {
	s := statusOf(&pod.Status, container)
	if s == nil {
		return "", fmt.Errorf("container %q in pod %q is not available", container, pod.Name)
	}
	last := ""
	if s.LastTerminationState.Terminated != nil {
		last = s.LastTerminationState.Terminated.ContainerID
	}
	switch now := s.State; {
	case previous && last != "":
		return last, nil
	case previous:
		return "", fmt.Errorf("previous terminated container %q in pod %q not found", container, pod.Name)
	case now.Running != nil:
		return s.ContainerID, nil
	case now.Terminated != nil && now.Terminated.ContainerID != "":
		return now.Terminated.ContainerID, nil
	case last != "": // the next instance was not started
		return last, nil
	case now.Terminated != nil, s.LastTerminationState.Terminated != nil:
		return "", fmt.Errorf("container %q in pod %q is terminated", container, pod.Name)
	case now.Waiting != nil:
		return "", fmt.Errorf("container %q in pod %q is waiting to start: %s", container, pod.Name,
			waitingReason(now.Waiting.Reason))
	default:
		return "", fmt.Errorf("container %q in pod %q is waiting to start - no logs yet", container, pod.Name)
	}
}

// waitingReason returns kubelet's words for the reason of a waiting container.
func waitingReason(reason string) string {
	switch reason {
	case "ErrImagePull":
		return "image can't be pulled"
	case "ImagePullBackOff":
		return "trying and failing to pull image"
	default:
		return reason
	}
}
