package crimeta

import (
	"path"
	"strconv"
	"strings"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// LogDirectory returns the directory for the logs of the pod's containers,
// "<logsDir>/<namespace>_<name>_<uid>". The namespace and the name
// contain no "_".
func LogDirectory(logsDir string, ref runtime.PodRef) string {
	return path.Join(logsDir, ref.LogDirName())
}

// LogPath returns the path of the log of one container instance, relative to the log
// directory of its pod: "<container>/<restartCount>.log".
func LogPath(container string, restartCount int32) string {
	return path.Join(container, strconv.FormatInt(int64(restartCount), 10)+".log")
}

// maxFileName is the longest name of a file, in bytes: NAME_MAX of Linux.
const maxFileName = 255

// LogLink returns the name of the link to the log of an instance,
// "<pod>_<namespace>_<container>-<id>.log". A longer name than files can have loses the end
// of its ID (kubelet: logSymlink in kuberuntime/legacy.go).
func LogLink(ref runtime.PodRef, container, id string) string {
	const suffix = ".log"
	name := ref.Name + "_" + ref.Namespace + "_" + container + "-" + id
	return name[:min(len(name), maxFileName-len(suffix))] + suffix
}

// NextRestartCount returns the restart count for the next instance of a container
// from the names of the files in its log directory: one more than the greatest of
// "<n>.log" and its rotated forms "<n>.log.<suffix>", 0 if there are none. So the
// count goes on, and old logs are not overwritten, after a runtime has lost its state.
func NextRestartCount(names []string) int32 {
	next := int64(0)
	for _, name := range names {
		digits, rest, ok := strings.Cut(name, ".log")
		if !ok || rest != "" && rest[0] != '.' {
			continue
		}
		// ParseUint accepts no sign; with 31 bits, one can be added.
		if n, err := strconv.ParseUint(digits, 10, 31); err == nil && int64(n) < 1<<31-1 {
			next = max(next, int64(n)+1)
		}
	}
	return int32(next)
}
