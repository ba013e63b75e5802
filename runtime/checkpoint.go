package runtime

import (
	"context"
	"time"
)

// Checkpointer is an optional interface of a [Runtime], found with [Optional]: it writes the
// state of a container to a file, from which it can be restored (KEP-2008).
type Checkpointer interface {
	// CheckpointContainer writes the state of a running container to a new file. The container
	// goes on running. A timeout of 0 is the runtime's default.
	CheckpointContainer(ctx context.Context, id ContainerID, path string, timeout time.Duration) error
}
