package volume

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// FailedMounts returns kubelet's texts of the events FailedMount for an error of
// [Manager].SetUp. ready is what SetUp has returned with it. There is one text for all
// volumes that could not be processed, because their claim cannot be used or no plugin supports
// them, and one for each other volume. There is none if the error is not one of single volumes.
func FailedMounts(pod *v1.Pod, ready map[string]runtime.Volume, err error) []string {
	var texts, unprocessed, reasons []string
	for _, failed := range SetUpErrors(err) {
		if cause := (*processError)(nil); errors.As(failed.Err, &cause) {
			unprocessed, reasons = append(unprocessed, failed.Volume), append(reasons, cause.Error())
			continue
		}
		texts = append(texts, failed.Message())
	}
	if len(unprocessed) == 0 {
		return texts
	}
	var unmounted []string
	for v := range podspec.UsedVolumes(&pod.Spec) {
		if _, ok := ready[v.Name]; !ok {
			unmounted = append(unmounted, v.Name)
		}
	}
	return append([]string{unprocessedText(unmounted, unprocessed, reasons)}, texts...)
}

// unprocessedText is kubelet's text for volumes that its populator could not process
// (WaitForAttachAndMount). No volume is attached here.
func unprocessedText(unmounted, unprocessed, reasons []string) string {
	slices.Sort(unmounted)
	slices.Sort(unprocessed)
	slices.Sort(reasons)
	return fmt.Sprintf("Unable to attach or mount volumes: unmounted volumes=%v, unattached volumes=[], failed to "+
		"process volumes=%v: %s",
		unmounted, unprocessed, strings.Join(slices.Compact(reasons), "; "))
}

// processError means that a volume cannot be set up, as it is not known what is to be set up.
type processError struct{ err error }

func (e *processError) Error() string { return e.err.Error() }

func (e *processError) Unwrap() error { return e.err }

// unsupported returns the error for a volume of a type that no plugin supports. The beginning of
// its text is kubelet's (AddPodToVolume).
func unsupported(name, typ string) error {
	return &processError{fmt.Errorf("failed to get Plugin from volumeSpec for volume %q err=no volume plugin "+
		"matched: %w: %s; %s",
		name, ErrUnsupported, typ, advice(typ[strings.LastIndexByte(typ, ' ')+1:]))}
}

// advice returns what to do about a volume of a type, as the API names it, that no plugin supports.
func advice(typ string) string {
	switch typ {
	case "awsElasticBlockStore", "azureDisk", "azureFile", "cinder", "csi", "gcePersistentDisk", "portworxVolume",
		"vsphereVolume":
		return "volumes of CSI drivers need a node of a cluster, with the plugin for them"
	case "nfs":
		return "volumes of NFS servers need the plugin for them, and a runtime with mounts"
	case "Block": // the mode of a persistent volume
		return "block devices need the plugin for them, and a runtime with mounts"
	case "iscsi", "fc":
		return "volumes on disks of a network need the plugin for them, and a runtime with mounts"
	case "cephfs", "rbd":
		return "Kubernetes has removed the type; use the CSI driver of Ceph"
	case "glusterfs":
		return "Kubernetes has removed the type; use a CSI driver, or an NFS server"
	case "flocker", "photonPersistentDisk", "quobyte", "scaleIO", "storageos":
		return "Kubernetes has removed the type; use a CSI driver"
	case "gitRepo":
		return "the type is disabled in Kubernetes; use an emptyDir and an init container that runs git"
	case "flexVolume":
		return "the type is deprecated in Kubernetes; use a CSI driver, or a node that has a plugin for it"
	}
	return "use another type, or a node that has a plugin for it"
}

// mountError is the failure of a step in the set-up of a persistent volume.
type mountError struct {
	// step is kubelet's name of it.
	step string
	// volume is the name of the persistent volume.
	volume string
	err    error
	// block means that the volume is a device.
	block bool
}

// Error returns kubelet's text.
func (e *mountError) Error() string {
	operation := "MountVolume"
	if e.block {
		operation = "MapVolume"
	}
	return fmt.Sprintf("%s.%s failed for volume %q : %v", operation, e.step, e.volume, e.err)
}

func (e *mountError) Unwrap() error { return e.err }
