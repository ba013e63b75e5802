// Package checkpoint reads and writes the file kubelet_internal_checkpoint, in which kubelet's device manager keeps the
// devices of pods.
//
// The checksum in the file is a hash of a dump of Go values, with the names of their types. So the package and its
// types have the names that they have in kubelet, and the fields their order.
package checkpoint

import (
	"encoding/json"
	"errors"

	"github.com/kubeletkit/kubeletkit/node/internal/checkpoint"
)

// ErrChecksum means that the content of the file does not have its checksum.
var ErrChecksum = errors.New("the checksum is wrong")

// DevicesPerNUMA has the IDs of devices by the memory node that they are near to; those that are near to none have -1,
// and a device near to several nodes has several.
type DevicesPerNUMA map[int64][]string

// PodDevicesEntry has the devices of one resource that a container has.
type PodDevicesEntry struct {
	PodUID        string
	ContainerName string
	ResourceName  string
	DeviceIDs     DevicesPerNUMA
	// AllocResp is an encoded ContainerAllocateResponse, see [Encode].
	AllocResp []byte
}

// checkpointData has kubelet's name of the type.
type checkpointData struct {
	PodDeviceEntries  []PodDevicesEntry
	RegisteredDevices map[string][]string
}

type file struct {
	Data     checkpointData
	Checksum uint64
}

// Marshal returns the content of the file with the entries, and the healthy devices of each resource.
func Marshal(entries []PodDevicesEntry, registered map[string][]string) ([]byte, error) {
	data := checkpointData{PodDeviceEntries: entries, RegisteredDevices: registered}
	return json.Marshal(file{Data: data, Checksum: checkpoint.Hash(appendDump(nil, data))})
}

// Unmarshal is the inverse of [Marshal]. Its error is that of the decoder, or [ErrChecksum], with what the content has:
// it may be damaged, or a later kubelet may have written more.
func Unmarshal(content []byte) (entries []PodDevicesEntry, registered map[string][]string, err error) {
	var f file
	if err := json.Unmarshal(content, &f); err != nil {
		return nil, nil, err
	}
	if f.Checksum != checkpoint.Hash(appendDump(nil, f.Data)) {
		err = ErrChecksum
	}
	return f.Data.PodDeviceEntries, f.Data.RegisteredDevices, err
}
