package podsync

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/underway"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/node/images"
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

// pullSecrets returns a function that looks up the pull secrets that a pod names. It leaves out a secret that cannot be
// read, as kubelet does: the image may be present already, or its registry may require no secret.
func pullSecrets(objects runtime.Objects) func(context.Context, *v1.Pod) ([]v1.Secret, error) {
	return func(ctx context.Context, pod *v1.Pod) ([]v1.Secret, error) {
		var found []v1.Secret
		for _, name := range secretNames(pod) {
			if objects == nil {
				break
			}
			if secret, err := objects.Secret(ctx, pod.Namespace, name); err == nil {
				found = append(found, *secret)
			}
		}
		return found, nil
	}
}

// secretNames returns the names of the pull secrets of a pod. The API server accepts empty names and repeated ones,
// which are left out.
func secretNames(pod *v1.Pod) (names []string) {
	for _, ref := range pod.Spec.ImagePullSecrets {
		if ref.Name != "" && !slices.Contains(names, ref.Name) {
			names = append(names, ref.Name)
		}
	}
	return names
}

// ensureImage returns the function by which the runtime obtains the images of a pod with the secrets. When a pull
// fails, it emits an event with the secrets that were not found, once a sync, as kubelet does since 1.37.
func (s *Syncer) ensureImage(pod *v1.Pod, secrets []v1.Secret,
	event runtime.EventFunc) func(context.Context, runtime.ImageRequest) (*runtime.Image, error) {
	var once sync.Once
	return func(ctx context.Context, req runtime.ImageRequest) (*runtime.Image, error) {
		call := underway.Begin(ctx, req.Container, "image", req.Image)
		defer call.End()
		image, err := s.deps.Images.Ensure(call, images.Request{Pod: pod, Secrets: secrets, ImageRequest: req})
		var reason *runtime.ImageError
		if err == nil || ctx.Err() != nil || !s.namedSecrets ||
			errors.As(err, &reason) && reason.Reason != runtime.ReasonImagePull {
			return image, err
		}
		missing := slices.DeleteFunc(secretNames(pod), func(name string) bool {
			return slices.ContainsFunc(secrets, func(s v1.Secret) bool { return s.Name == name })
		})
		if len(missing) > 0 {
			once.Do(func() {
				event.Emit(runtime.Event{Pod: runtime.RefOf(pod), Type: v1.EventTypeWarning,
					Reason: "FailedToRetrieveImagePullSecret", Message: fmt.Sprintf(
						"Unable to retrieve some image pull secrets (%s); attempting to pull the image may not succeed.",
						strings.Join(missing, ", "))})
			})
		}
		return image, err
	}
}
