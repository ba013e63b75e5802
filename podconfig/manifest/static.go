package manifest

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// NewStatic returns a source of that name with the pods of manifests, in YAML or JSON, such as those that are built
// into a program. A manifest that cannot be used is rejected; the pods of the others run.
func NewStatic(name string, manifests ...string) podconfig.Source {
	return podconfig.SourceFunc(name, func(ctx context.Context, sink podconfig.Sink) error {
		var pods []*v1.Pod
		for i, text := range manifests {
			origin := fmt.Sprintf("%s[%d]", name, i)
			loaded, err := Load([]byte(text), Options{NodeName: sink.NodeName(), Origin: origin,
				UID: func(pod *v1.Pod, hash string) types.UID {
					return sink.StaticUID(ctx, podconfig.StaticPod{Pod: pod, Manifest: hash})
				}})
			if err != nil {
				var pod runtime.PodRef
				if invalid := (*InvalidError)(nil); errors.As(err, &invalid) {
					pod = invalid.Pod
				}
				sink.Reject(pod, fmt.Errorf("%s: %w", origin, err))
			}
			pods = append(pods, loaded...)
		}
		if ctx.Err() == nil { // a static UID means nothing any more
			sink.Set(pods)
		}
		return nil
	})
}
