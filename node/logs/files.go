package logs

import (
	"time"

	"github.com/kubeletkit/kubeletkit/runtime/crilog"
)

// excess returns the oldest rotated files, so that the log and the others are at most maxFiles.
func excess(all []crilog.Rotated, maxFiles int) []crilog.Rotated {
	return all[:max(0, len(all)-max(1, maxFiles-1))]
}

// uncompressed returns the files to compress: all but the newest one, which a reader may not have finished, and to
// which the runtime writes until it has opened a new one.
func uncompressed(all []crilog.Rotated) (out []crilog.Rotated) {
	for _, r := range all[:max(0, len(all)-1)] {
		if !r.Compressed {
			out = append(out, r)
		}
	}
	return out
}

// The bounds of the time between two reads of the size of an active log, and the rate, in bytes a second, at which a
// log is assumed to grow at most.
const (
	minCheck    = 2 * time.Millisecond
	maxCheck    = time.Second
	assumedRate = 100 << 20
)

// checkAfter returns the time until the size of an active log is read again.
func checkAfter(size, maxSize int64) time.Duration {
	return min(max(time.Duration(float64(maxSize-size)/assumedRate*float64(time.Second)), minCheck), maxCheck)
}
