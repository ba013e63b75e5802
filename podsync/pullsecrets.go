package podsync

import (
	"context"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// pullSecrets returns a function that looks up the pull secrets that a pod names. A
// secret that cannot be read is left out, with an event, as in kubelet: the image may be
// present already, or its registry may require no secret.
func pullSecrets(objects runtime.Objects, event runtime.EventFunc) func(context.Context, *v1.Pod) ([]v1.Secret, error) {
	return func(ctx context.Context, pod *v1.Pod) ([]v1.Secret, error) {
		var found []v1.Secret
		var failed []string
		seen := map[string]bool{}
		for _, ref := range pod.Spec.ImagePullSecrets {
			if ref.Name == "" || objects == nil || seen[ref.Name] { // the API server accepts empty names, and repeated ones
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
			event.Emit(runtime.Event{Pod: runtime.RefOf(pod), Type: v1.EventTypeWarning, Reason: "FailedToRetrieveImagePullSecret", Message: fmt.Sprintf(
				"Unable to retrieve some image pull secrets (%s); attempting to pull the image may not succeed.", strings.Join(failed, ", "))})
		}
		return found, nil
	}
}
