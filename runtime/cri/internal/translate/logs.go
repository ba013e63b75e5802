package translate

import (
	"path"
	"strconv"
	"strings"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// LogDirectory is the directory for the logs of the pod's containers,
// "<logsDir>/<namespace>_<name>_<uid>". None of the three contains a "_".
func LogDirectory(logsDir string, ref runtime.PodRef) string {
	return path.Join(logsDir, ref.Namespace+"_"+ref.Name+"_"+string(ref.UID))
}

// LogPath is the log of one instance of a container, relative to the log directory
// of its pod: "<container>/<restartCount>.log".
func LogPath(container string, restartCount int32) string {
	return path.Join(container, strconv.FormatInt(int64(restartCount), 10)+".log")
}

// NextRestartCount is the restart count for the next instance of a container, from
// the names of the files in its log directory: one more than the greatest of
// "<n>.log" and its rotated forms "<n>.log.<suffix>", 0 if there are none. It
// keeps counts, and the logs of old instances, when a runtime has lost its state.
func NextRestartCount(names []string) int32 {
	next := int64(0)
	for _, name := range names {
		digits, rest, ok := strings.Cut(name, ".log")
		if !ok || rest != "" && rest[0] != '.' {
			continue
		}
		// ParseUint takes no sign, as it should be; 31 bits leave room for adding one.
		if n, err := strconv.ParseUint(digits, 10, 31); err == nil && int64(n) < 1<<31-1 {
			next = max(next, int64(n)+1)
		}
	}
	return int32(next)
}
