package csi

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/node/volume"
)

// publication is the input of NodePublishVolume beside that of the volume.
type publication struct {
	target, staging              string
	context, attributes, secrets map[string]string
	readOnly                     bool
}

// tokensKey is the attribute, or the secret, with the tokens of the service account (kubelet:
// podServiceAccountTokenAttrs).
const tokensKey = "csi.storage.k8s.io/serviceAccount.tokens"

// addPod adds what the CSIDriver object requests to be told of the pod. object may be nil.
func (p *Plugin) addPod(ctx context.Context, call *publication, object *storagev1.CSIDriver,
	req volume.PersistentRequest) error {
	if object == nil {
		return nil
	}
	if ptr.Deref(object.Spec.PodInfoOnMount, false) {
		call.attributes = with(call.attributes, map[string]string{
			"csi.storage.k8s.io/pod.name":            req.Pod.Name,
			"csi.storage.k8s.io/pod.namespace":       req.Pod.Namespace,
			"csi.storage.k8s.io/pod.uid":             string(req.Pod.UID),
			"csi.storage.k8s.io/serviceAccount.name": req.Pod.Spec.ServiceAccountName,
			"csi.storage.k8s.io/ephemeral":           strconv.FormatBool(req.Inline),
		})
	}
	if len(object.Spec.TokenRequests) == 0 || req.Block { // kubelet has no tokens for block volumes
		return nil
	}
	tokens := map[string]authenticationv1.TokenRequestStatus{}
	for _, r := range object.Spec.TokenRequests {
		token, err := p.cluster.Token(ctx, req.Pod, r.Audience, r.ExpirationSeconds)
		if err != nil {
			return fmt.Errorf("a token of service account %s for the audience %q: %w", req.Pod.Spec.ServiceAccountName,
				r.Audience, err)
		}
		tokens[r.Audience] = token
	}
	text, err := json.Marshal(tokens)
	if err != nil {
		return err
	}
	if added := map[string]string{tokensKey: string(text)}; ptr.Deref(object.Spec.ServiceAccountTokenInSecrets, false) {
		call.secrets = with(call.secrets, added)
	} else {
		call.attributes = with(call.attributes, added)
	}
	return nil
}

// with returns a copy of a map with more in it.
func with(m, more map[string]string) map[string]string {
	out := make(map[string]string, len(m)+len(more))
	maps.Copy(out, m)
	maps.Copy(out, more)
	return out
}

// secrets returns the content of a secret. field is the name of the reference.
func (p *Plugin) secrets(ctx context.Context, ref *v1.SecretReference, field string) (map[string]string, error) {
	if ref == nil {
		return nil, nil
	}
	secret, err := p.cluster.Secret(ctx, ref.Namespace, ref.Name)
	if err != nil {
		return nil, fmt.Errorf("fetching %s %s/%s failed: %w", field, ref.Namespace, ref.Name, err)
	}
	out := make(map[string]string, len(secret.Data))
	for key, value := range secret.Data {
		out[key] = string(value)
	}
	return out, nil
}

// checkLifecycle refuses a volume that the driver does not support in this place (kubelet:
// supportsVolumeLifecycleMode).
func checkLifecycle(object *storagev1.CSIDriver, driver string, inline bool) error {
	mode := lifecycleOf(inline)
	switch {
	case object == nil && !inline:
		return nil
	case object == nil:
		return fmt.Errorf("volume mode %q not supported by driver %s (no CSIDriver object)", mode, driver)
	case slices.Contains(object.Spec.VolumeLifecycleModes, mode):
		return nil
	}
	return fmt.Errorf("volume mode %q not supported by driver %s (only supports %q)", mode, driver,
		object.Spec.VolumeLifecycleModes)
}

func lifecycleOf(inline bool) storagev1.VolumeLifecycleMode {
	if inline {
		return storagev1.VolumeLifecycleEphemeral
	}
	return storagev1.VolumeLifecyclePersistent
}

// ofGroup reports whether the agent gives the files to the fsGroup of the pod (kubelet: supportsFSGroup).
func ofGroup(object *storagev1.CSIDriver, req volume.PersistentRequest) bool {
	policy := storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy
	if object != nil && object.Spec.FSGroupPolicy != nil {
		policy = *object.Spec.FSGroupPolicy
	}
	switch policy {
	case storagev1.NoneFSGroupPolicy:
		return false
	case storagev1.FileFSGroupPolicy:
		return true
	}
	modes := req.Volume.Spec.AccessModes
	return req.Volume.Spec.CSI.FSType != "" &&
		(slices.Contains(modes, v1.ReadWriteOnce) || slices.Contains(modes, v1.ReadWriteOncePod))
}

// fsGroup returns the fsGroup of the pod, or nil.
func fsGroup(pod *v1.Pod) *int64 {
	if pod.Spec.SecurityContext == nil {
		return nil
	}
	return pod.Spec.SecurityContext.FSGroup
}
