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

// Wrapped is what a checkpoint of CPUs or memory of kubelet since 1.37 has after the fields for earlier versions: all
// of its content as a text, and the checksum of the text.
type Wrapped struct {
	Data     string   `json:"data"`
	Checksum Checksum `json:"dataChecksum"`
}

// Wrap returns the content with its checksum.
func Wrap(content []byte) Wrapped {
	text := string(content)
	return Wrapped{text, Checksum(Hash(dump.ForHash(text)))}
}

// Unwrap returns the content of a checkpoint that kubelet has written since 1.37, and true. It returns one of an
// earlier version as it is. The error is [ErrChecksum] or one of JSON.
func Unwrap(data []byte) (content []byte, wrapped bool, err error) {
	var in Wrapped
	if err := json.Unmarshal(data, &in); err != nil {
		return nil, false, err
	}
	switch {
	case in.Data == "" && in.Checksum == 0:
		return data, false, nil
	case in != Wrap([]byte(in.Data)):
		return nil, false, ErrChecksum
	}
	return []byte(in.Data), true, nil
}

// Hash returns kubelet's hash of a dump.
func Hash[T string | []byte](text T) uint64 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(text)) // never fails
	return uint64(h.Sum32())
}
