package dra

import (
	"context"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Claims reads ResourceClaims. Package cluster/resourceclaims implements it.
type Claims interface {
	// Claim returns the claim as the API server has it now. It is read-only.
	Claim(ctx context.Context, namespace, name string) (*resourceapi.ResourceClaim, error)
}

// Slices removes ResourceSlices of the node. Package cluster/resourceclaims implements it.
type Slices interface {
	// RemoveSlices removes those that the driver has published for the node, those of all drivers if the name is empty.
	// It is no error if there are none.
	RemoveSlices(ctx context.Context, driver string) error
}

// Driver prepares claims on this node. Its methods are called concurrently for different claims, never for the same
// claim. They return soon after ctx has ended. A panic is an error.
type Driver interface {
	// Prepare makes the devices of claims usable. It is called again for claims that are prepared, after a restart of
	// the agent or a failure. The result has each claim, also if it has no devices. The error is one of the call as a
	// whole.
	Prepare(ctx context.Context, claims []Claim) (map[types.UID]Prepared, error)
	// Unprepare undoes Prepare, also for claims that are not prepared. The result has each claim, with nil for success.
	Unprepare(ctx context.Context, claims []Claim) (map[types.UID]error, error)
}

// Claim identifies a ResourceClaim.
type Claim struct {
	Namespace, Name string
	UID             types.UID
}

// Prepared is the result of [Driver.Prepare] for one claim: its devices, or why they cannot be used.
type Prepared struct {
	Devices []Device
	Err     error
}

// Device is a device of a claim.
type Device struct {
	// Pool and Name are those of the device in its slice.
	Pool, Name string
	// ShareID is the part of a device that several claims share (KEP-5075); nil if the device is not shared.
	ShareID *types.UID
	// Requests are the requests of the claim that the device is for. If empty, it is for all.
	Requests []string
	// CDIDevices are qualified names of the Container Device Interface, such as "vendor.com/gpu=0". There may be none.
	CDIDevices []string
}
