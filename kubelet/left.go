package kubelet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"time"

	"github.com/kubeletkit/kubeletkit/kubelet/internal/config"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/control"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/local"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/cri"
	"github.com/kubeletkit/kubeletkit/runtime/process"
	"github.com/kubeletkit/kubeletkit/server"
)

// left returns a handler that answers commands from what an agent has left on the disk and in its container runtime,
// and sentences about what goes on running. The endpoint is "" for that of the agent that was started last. The error
// wraps local.ErrNothingLeft if there is nothing.
func left(ctx context.Context, program config.Program, rootDir, endpoint string) (http.Handler, string, error) {
	noted := endpoint == ""
	if noted {
		endpoint = local.LastEndpoint(rootDir)
	}
	pods, err := leftPods(ctx, rootDir, endpoint)
	unknown := errors.Is(err, fs.ErrNotExist) || errors.Is(err, process.ErrNotSupported) || noted && endpoint != ""
	if err != nil && !unknown {
		return nil, "", err
	}
	l, failed := local.ReadLeft(ctx, rootDir, pods, err == nil)
	if failed != nil {
		return nil, "", failed
	}
	text := farewell(l.Running(), program, rootDir, endpoint)
	switch {
	case text != "":
		text += "."
	case err != nil && endpoint != "":
		text = fmt.Sprintf("Its pods may go on running in the container runtime, which does not list them: %v.", err)
	case err != nil:
		text = "The pods of a container runtime may go on running; --container-runtime-endpoint shows them."
	default:
		text = "Nothing of its pods runs."
	}
	return control.Handler(l, control.NewStop(), server.Options{Logger: silent()}), text, nil
}

// leftPods returns the pods of a container runtime. The endpoint is "" for the embedded runtime in the root directory.
func leftPods(ctx context.Context, rootDir, endpoint string) ([]*runtime.PodStatus, error) {
	if endpoint == "" {
		return process.ReadPods(embeddedDir(&config.Settings{RootDir: rootDir}))
	}
	rt, err := cri.Dial(ctx, endpoint, cri.Options{CallTimeout: 5 * time.Second, // a user waits
		Observer: runtime.Observer{Logger: silent()}})
	if err != nil {
		return nil, err
	}
	defer func() { _ = rt.Close() }()
	listed, err := rt.ListPods(ctx)
	if err != nil {
		return nil, err
	}
	var pods []*runtime.PodStatus
	for _, pod := range listed {
		status, err := rt.InspectPod(ctx, pod.PodRef)
		if err != nil {
			return nil, err
		}
		pods = append(pods, status)
	}
	return pods, nil
}
