// Package csinode has the names of volumes of CSI drivers in a cluster, and what the drivers of a node need of it. It
// is apart from package csi so that the client of a cluster does not depend on gRPC.
package csinode

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// Cluster has the objects of an API server that volumes of drivers need, and publishes what the drivers report of the
// node. Package cluster/storage implements it. It is safe for concurrent use. Objects that it returns are shared and
// must not be changed. Its errors satisfy IsNotFound of k8s.io/apimachinery/pkg/api/errors if there is no such object;
// any other error means that it is not known whether there is one.
type Cluster interface {
	// Driver returns the CSIDriver object of a driver.
	Driver(ctx context.Context, name string) (*storagev1.CSIDriver, error)
	// Attachment returns a VolumeAttachment, as it is now, or as it was when the API server was last reached if it is
	// attached and the API server is away.
	Attachment(ctx context.Context, name string) (*storagev1.VolumeAttachment, error)
	// Forget drops a VolumeAttachment from what is kept for times without the API server. It is called when its volume
	// is not staged on the node any more, also for a volume that was never attached. It makes no request. Secrets are
	// dropped without a call, after their pods have gone.
	Forget(attachment string)
	// Secret returns a secret that a persistent volume or a volume of a pod refers to, as it is now, or as it was when
	// the API server was last reached.
	Secret(ctx context.Context, namespace, name string) (*v1.Secret, error)
	// Token returns a token of the service account of the pod, bound to the pod. No audience means that of the API
	// server.
	Token(ctx context.Context, pod *v1.Pod, audience string,
		expirationSeconds *int64) (authenticationv1.TokenRequestStatus, error)
	// Attached returns nil if the status of the node object has the volume among those in use, and among those that
	// are attached (volumesInUse, volumesAttached). Otherwise the error says which is missing; pods for which it was
	// called are synced again when that changes.
	Attached(ctx context.Context, volume v1.UniqueVolumeName, pod *v1.Pod) error
	// Install publishes a driver: in the CSINode object, which it creates, and in an annotation and labels of the node.
	// It is called again after a change. It returns nil if the API server does not answer, and publishes the driver
	// when it does. An error, such as that the node has a label with another value, refuses the driver.
	Install(ctx context.Context, driver Driver) error
	// Uninstall removes a driver from both, as Install publishes it.
	Uninstall(ctx context.Context, name string) error
}

// Driver is what a driver reports of the node (NodeGetInfo).
type Driver struct {
	// Name is that of the driver, NodeID its name of the node. Neither is empty.
	Name, NodeID string
	// MaxVolumes is how many volumes the node can have; 0 is not known.
	MaxVolumes int64
	// Topology are the labels of where volumes of the driver must be to be usable on the node.
	Topology map[string]string
}

// PluginName is the name of the plugin, which is part of paths on disk and of names in the status of the node.
const PluginName = "kubernetes.io/csi"

// Separator is between driver and handle in the name of a volume (kubelet: volNameSep).
const Separator = "^"

// AttachmentName returns the name of the VolumeAttachment of a volume (kubelet: getAttachmentName).
func AttachmentName(handle, driver, node string) string {
	sum := sha256.Sum256([]byte(handle + driver + node))
	return "csi-" + hex.EncodeToString(sum[:])
}

// UniqueName returns the name of a volume in the status of a node.
func UniqueName(driver, handle string) v1.UniqueVolumeName {
	return v1.UniqueVolumeName(strings.Join([]string{PluginName, driver + Separator + handle}, "/"))
}

// SplitUniqueName returns the driver and the handle of a name of [UniqueName], and false if it is another one.
func SplitUniqueName(volume v1.UniqueVolumeName) (driver, handle string, ok bool) {
	rest, ok := strings.CutPrefix(string(volume), PluginName)
	if ok {
		rest, ok = strings.CutPrefix(rest, "/")
	}
	if !ok {
		return "", "", false
	}
	return strings.Cut(rest, Separator) // the name of a driver has no separator
}
