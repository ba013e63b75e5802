package kubelet

import (
	"github.com/go-logr/logr"

	"github.com/kubeletkit/kubeletkit/node/threads"
)

// fillThreads makes idle threads while there is room for them, if the agent has a limit of processes: at the limit it
// would end when it needs one more thread.
func fillThreads(log logr.Logger) (*threads.Reserve, error) {
	reserve, err := threads.New(threads.Options{Logger: log.WithName("threads")})
	if err != nil {
		return nil, err
	}
	reserve.Fill()
	return reserve, nil
}
