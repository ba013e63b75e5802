package runtime

import "context"

// LogReopener is an optional interface of a [Runtime], found with [Optional]: the logs of its containers can be
// rotated.
type LogReopener interface {
	// ReopenContainerLog makes the running container write its output to a new file with the path of its log, which was
	// renamed. If a file with the path exists, the container appends to it. What was written before the call is in the
	// old file soon after it returns, and no output is lost. The error wraps [ErrNotFound] if no such container runs.
	ReopenContainerLog(ctx context.Context, id ContainerID) error
}
