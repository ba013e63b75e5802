package kubelet

import (
	"context"
	"errors"
	"io/fs"
	"net/http"

	"github.com/kubeletkit/kubeletkit/kubelet/internal/config"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/control"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/local"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/cri"
	"github.com/kubeletkit/kubeletkit/runtime/process"
	"github.com/kubeletkit/kubeletkit/server"
)

// left returns a handler that answers commands from what an agent has left on the disk and in its container runtime,
// and sentences about what goes on running. The endpoint is "" for the embedded runtime in the root directory. The
// error wraps local.ErrNothingLeft if there is nothing.
func left(ctx context.Context, program config.Program, rootDir, endpoint string) (http.Handler, string, error) {
	pods, err := leftPods(ctx, rootDir, endpoint)
	unknown := errors.Is(err, fs.ErrNotExist) || errors.Is(err, process.ErrNotSupported)
	if err != nil && !unknown {
		return nil, "", err
	}
	l, err := local.ReadLeft(ctx, rootDir, pods)
	if err != nil {
		return nil, "", err
	}
	text := farewell(l.Running(), program, rootDir, endpoint)
	switch {
	case text != "":
		text += "."
	case unknown:
		text = "The pods of a container runtime may go on running; --container-runtime-endpoint shows them."
	default:
		text = "Nothing of its pods runs."
	}
	return control.Handler(l, control.NewStop(), server.Options{Logger: silent()}), text, nil
}

// leftPods returns the pods of a container runtime.
func leftPods(ctx context.Context, rootDir, endpoint string) ([]*runtime.PodStatus, error) {
	if endpoint == "" {
		return process.ReadPods(embeddedDir(&config.Settings{RootDir: rootDir}))
	}
	rt, err := cri.Dial(ctx, endpoint, cri.Options{Observer: runtime.Observer{Logger: silent()}})
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
