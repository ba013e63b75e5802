package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes"

	"github.com/kubeletkit/kubeletkit/node/volume"
)

// claimTimeout is the deadline of one read.
const claimTimeout = 10 * time.Second

// claims reads claims and persistent volumes from the API server. A node may only get the claims
// that its pods refer to and the volumes behind them: its authorizer refuses to list or watch them
// (kubernetes: plugin/pkg/auth/authorizer/node, authorizeGet). So a pod whose claim cannot be used
// is tried again after the back-off of podworkers, and at once when the pod changes. A volume is
// read when it is set up for a pod, and then remembered by package volume.
type claims struct{ client kubernetes.Interface }

var _ volume.ClaimSource = claims{}

// Claim implements [volume.ClaimSource].
func (c claims) Claim(ctx context.Context, namespace, name string) (*v1.PersistentVolumeClaim, error) {
	ctx, cancel := context.WithTimeout(ctx, claimTimeout)
	defer cancel()
	return c.client.CoreV1().PersistentVolumeClaims(namespace).Get(ctx, name, metav1.GetOptions{})
}

// PersistentVolume implements [volume.ClaimSource].
func (c claims) PersistentVolume(ctx context.Context, name string) (*v1.PersistentVolume, error) {
	ctx, cancel := context.WithTimeout(ctx, claimTimeout)
	defer cancel()
	return c.client.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
}

// UpdateStatus implements [volume.ClaimSource].
func (c claims) UpdateStatus(ctx context.Context,
	old, updated *v1.PersistentVolumeClaim) (*v1.PersistentVolumeClaim, error) {
	ctx, cancel := context.WithTimeout(ctx, claimTimeout)
	defer cancel()
	// The version is in the patch only if it is missing in the old object.
	from, to := old.DeepCopy(), updated.DeepCopy()
	from.ResourceVersion, to.ResourceVersion = "", old.ResourceVersion
	before, err := json.Marshal(from)
	if err != nil {
		return nil, err
	}
	after, err := json.Marshal(to)
	if err != nil {
		return nil, err
	}
	patch, err := strategicpatch.CreateTwoWayMergePatch(before, after, old)
	if err != nil {
		return nil, fmt.Errorf("the patch of claim %s/%s: %w", old.Namespace, old.Name, err)
	}
	return c.client.CoreV1().PersistentVolumeClaims(old.Namespace).Patch(ctx, old.Name, types.StrategicMergePatchType,
		patch, metav1.PatchOptions{}, "status")
}
