package fake

import (
	"context"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/node/dra"
)

// Claims are ResourceClaims in memory, and record removals of ResourceSlices. Make them with [NewClaims]. They are safe
// for concurrent use.
type Claims struct {
	mu      sync.Mutex
	claims  map[types.NamespacedName]*resourceapi.ResourceClaim
	removed []string
}

var (
	_ dra.Claims = (*Claims)(nil)
	_ dra.Slices = (*Claims)(nil)
)

// NewClaims returns the claims.
func NewClaims(list ...*resourceapi.ResourceClaim) *Claims {
	c := &Claims{claims: map[types.NamespacedName]*resourceapi.ResourceClaim{}}
	for _, claim := range list {
		c.Set(claim)
	}
	return c
}

// Set adds or replaces a claim.
func (c *Claims) Set(claim *resourceapi.ResourceClaim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.claims[types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name}] = claim.DeepCopy()
}

// Remove removes a claim, if it is there.
func (c *Claims) Remove(namespace, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.claims, types.NamespacedName{Namespace: namespace, Name: name})
}

// Claim implements [dra.Claims]. Its error is that of an API server: not found.
func (c *Claims) Claim(_ context.Context, namespace, name string) (*resourceapi.ResourceClaim, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	claim := c.claims[types.NamespacedName{Namespace: namespace, Name: name}]
	if claim == nil {
		return nil, apierrors.NewNotFound(resourceapi.Resource("resourceclaims"), name)
	}
	return claim.DeepCopy(), nil
}

// RemoveSlices implements [dra.Slices].
func (c *Claims) RemoveSlices(_ context.Context, driver string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.removed = append(c.removed, driver)
	return nil
}

// RemovedSlices returns the drivers whose slices were removed, in this order; "" stands for those of all drivers.
func (c *Claims) RemovedSlices() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.removed)
}

// Allocated returns a claim for a device of the driver, which is allocated and reserved for the pods. Its UID is made
// of its namespace and name.
func Allocated(namespace, name, driver string, pods ...*v1.Pod) *resourceapi.ResourceClaim {
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name,
		UID: types.UID(namespace + "/" + name)}}
	claim.Spec.Devices.Requests = []resourceapi.DeviceRequest{{Name: "device",
		Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: driver}}}
	claim.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
		Results: []resourceapi.DeviceRequestAllocationResult{{Request: "device", Driver: driver,
			Pool: "node", Device: name}},
	}}
	for _, pod := range pods {
		claim.Status.ReservedFor = append(claim.Status.ReservedFor,
			resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: pod.Name, UID: pod.UID})
	}
	return claim
}

// Use has the pod, and all of its containers, use the claims.
func Use(pod *v1.Pod, claims ...string) {
	for _, name := range claims {
		pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims,
			v1.PodResourceClaim{Name: name, ResourceClaimName: &name})
		for i := range pod.Spec.Containers {
			c := &pod.Spec.Containers[i]
			c.Resources.Claims = append(c.Resources.Claims, v1.ResourceClaim{Name: name})
		}
	}
}
