package checkpoint

import (
	"encoding/json"
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

// Hash returns kubelet's hash of a dump.
func Hash[T string | []byte](text T) uint64 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(text)) // never fails
	return uint64(h.Sum32())
}

// Pods has the resources of pods as a whole in a checkpoint of kubelet, which its feature gate PodLevelResourceManagers
// assigns.
type Pods struct {
	PodEntries map[string]json.RawMessage `json:"podEntries"`
	// Data is the whole content again, as kubelet has it since 1.37 beside what earlier ones read.
	Data string `json:"data"`
}

// Any reports whether there are some.
func (p Pods) Any() bool {
	var more Pods
	_ = json.Unmarshal([]byte(p.Data), &more) // without it, the rest of the checkpoint counts
	return len(p.PodEntries)+len(more.PodEntries) > 0
}
