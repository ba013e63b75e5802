package checkpoint

import (
	"encoding/json"
	"errors"
	"hash/fnv"
	"strings"

	"k8s.io/utils/dump"
)

// Checksum is kubelet's checksum of a checkpoint. It is the last field of the checkpoint.
type Checksum uint64

// Sum returns kubelet's checksum of a checkpoint whose checksum is 0: a hash of its dump, which has the names of types.
// kind is kubelet's name of its type, and pods that of the field that kubelet has before the checksum with the feature
// gate PodLevelResourceManagers: empty, with its type. "" is without the gate.
func Sum(checkpoint any, kind, pods string) Checksum {
	_, fields, _ := strings.Cut(dump.ForHash(checkpoint), "{")
	fields = strings.TrimSuffix(fields, "Checksum:(checkpoint.Checksum)0}")
	return Checksum(Hash("(*" + kind + "){" + fields + pods + "Checksum:(checksum.Checksum)0}"))
}

// ErrChecksum means that a checkpoint is not as it was written.
var ErrChecksum = errors.New("its checksum is wrong: the file was changed or not written to its end")

// Unwrap returns the content of a checkpoint of CPUs or memory that kubelet has written since 1.37, which is a text in
// it with a checksum of its own; the other fields are for earlier versions. It returns one of these versions as it is.
// The error is [ErrChecksum] or one of JSON.
func Unwrap(data []byte) (content []byte, err error) {
	var in struct {
		Data     string   `json:"data"`
		Checksum Checksum `json:"dataChecksum"`
	}
	if err := json.Unmarshal(data, &in); err != nil {
		return nil, err
	}
	switch {
	case in.Data == "" && in.Checksum == 0:
		return data, nil
	case in.Checksum != Checksum(Hash(dump.ForHash(in.Data))):
		return nil, ErrChecksum
	}
	return []byte(in.Data), nil
}

// Hash returns kubelet's hash of a dump.
func Hash[T string | []byte](text T) uint64 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(text)) // never fails
	return uint64(h.Sum32())
}
