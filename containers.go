package kubeletkit

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// RuntimeStatus returns what was last seen of the pod in the runtime, without
// asking it: all instances of its containers, and where their logs are. It must
// not be changed. It reports false if nothing is known of the pod.
func (a *Agent) RuntimeStatus(uid types.UID) (*runtime.PodStatus, bool) { return a.cache.Get(uid) }

// Exec runs the command in a container, as [runtime.Execer] says.
func (a *Agent) Exec(ctx context.Context, id runtime.ContainerID, cmd []string, timeout time.Duration) (runtime.ExecResult, error) {
	return a.opts.Runtime.Exec(ctx, id, cmd, timeout)
}
