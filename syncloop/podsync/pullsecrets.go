package podsync

import (
	"context"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// secretsComponent is the component that looks up the image pull secrets of pods.
type secretsComponent struct {
	secrets func(ctx context.Context, pod *v1.Pod) ([]v1.Secret, error)
}

// Name implements [lifecycle.Component].
func (secretsComponent) Name() string { return "pull secrets" }

// Prepare implements [lifecycle.Preparer].
func (c secretsComponent) Prepare(ctx context.Context,
	req lifecycle.PrepareRequest) (lifecycle.PrepareResponse, error) {
	secrets, err := c.secrets(ctx, req.Pod)
	return lifecycle.PrepareResponse{PullSecrets: secrets}, err
}

// serviceEnv is the component that gives containers the variables of services.
type serviceEnv struct {
	variables func(ctx context.Context, pod *v1.Pod) ([]v1.EnvVar, error)
}

// Name implements [lifecycle.Component].
func (serviceEnv) Name() string { return "service variables" }

// EditContainer implements [lifecycle.ContainerEditor].
func (c serviceEnv) EditContainer(ctx context.Context, pod *v1.Pod, _ *v1.Container) (runtime.ContainerEdits, error) {
	env, err := c.variables(ctx, pod)
	return runtime.ContainerEdits{ServiceEnv: env}, err
}

// pullSecrets returns a function that looks up the pull secrets that a pod names. A
// secret that cannot be read is left out, with an event, as in kubelet: the image may be
// present already, or its registry may require no secret.
func pullSecrets(objects runtime.Objects, event runtime.EventFunc) func(context.Context, *v1.Pod) ([]v1.Secret, error) {
	return func(ctx context.Context, pod *v1.Pod) ([]v1.Secret, error) {
		var found []v1.Secret
		var failed []string
		seen := map[string]bool{}
		for _, ref := range pod.Spec.ImagePullSecrets {
			if ref.Name == "" || objects == nil || seen[ref.Name] {
				// the API server accepts empty names, and repeated ones
				continue
			}
			seen[ref.Name] = true
			secret, err := objects.Secret(ctx, pod.Namespace, ref.Name)
			if err != nil {
				failed = append(failed, ref.Name)
				continue
			}
			found = append(found, *secret)
		}
		if len(failed) > 0 && ctx.Err() == nil {
			event.Emit(runtime.Event{Pod: runtime.RefOf(pod), Type: v1.EventTypeWarning,
				Reason: "FailedToRetrieveImagePullSecret", Message: fmt.Sprintf(
					"Unable to retrieve some image pull secrets (%s); attempting to pull the image may not succeed.",
					strings.Join(failed, ", "))})
		}
		return found, nil
	}
}
