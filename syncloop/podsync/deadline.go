package podsync

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/safefile"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// deadlineFile is the name of the file in the directory of a pod that is being stopped. It
// has the end of the grace period and the [Syncer] that wrote it, so that the grace period
// does not begin anew when the agent is restarted. It is not synced to the disk: after a
// power loss nothing runs.
const deadlineFile = "termination-deadline"

// maxDeadlineFile is the limit for reading the file, in bytes.
const maxDeadlineFile = 256

// graceLeft returns the grace period, in seconds, with which the pod is stopped now: the
// given one, or what an earlier agent has left of it, at least 1. It records the end of it.
//
// A deadline of this Syncer does not count: if a call for the pod is repeated, the runtime
// may not have been reached before, and the containers may not have received their signal.
func (s *Syncer) graceLeft(ref runtime.PodRef, grace int64) int64 {
	path := filepath.Join(s.PodDir(ref.UID), deadlineFile)
	now := time.Now()
	if deadline, by := readDeadline(path); by != "" && by != s.id {
		left := max(1, int64((deadline.Sub(now)+time.Second-1)/time.Second))
		if left <= grace {
			return left
		}
	}
	record := now.Add(podspec.Seconds(grace)).Format(time.RFC3339Nano) + " " + s.id + "\n"
	if err := safefile.Write(path, []byte(record)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		// without a directory, none of our agents has run the pod
		s.log.Error(err, "The deadline of a pod that is being stopped cannot be recorded; if the agent is "+
			"restarted, its grace period begins anew", "pod", ref)
	}
	return grace
}

// readDeadline returns the recorded deadline and the Syncer that recorded it; "" if there
// is none, or none that can be read.
func readDeadline(path string) (deadline time.Time, by string) {
	raw, err := safefile.ReadFile(path, maxDeadlineFile)
	if err != nil {
		return time.Time{}, ""
	}
	at, by, _ := strings.Cut(strings.TrimSpace(string(raw)), " ")
	deadline, err = time.Parse(time.RFC3339Nano, at)
	if err != nil {
		return time.Time{}, ""
	}
	return deadline, by
}

// dropDeadline removes the deadline of an earlier incarnation.
func (s *Syncer) dropDeadline(pod *v1.Pod) {
	err := os.Remove(filepath.Join(s.PodDir(pod.UID), deadlineFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
		s.log.Error(err, "The recorded deadline of an earlier pod of the UID cannot be removed",
			"pod", runtime.RefOf(pod))
	}
}

// recordedGrace returns the longest grace period of the containers that run, in seconds.
func recordedGrace(observed *runtime.PodStatus) int64 {
	longest := int64(0)
	for i := range observed.Containers {
		c := &observed.Containers[i]
		switch {
		case c.State != runtime.ContainerRunning && c.State != runtime.ContainerUnknown:
		case c.GracePeriod != nil:
			longest = max(longest, *c.GracePeriod)
		default:
			longest = max(longest, podspec.DefaultGracePeriod)
		}
	}
	return longest
}
