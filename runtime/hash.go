package runtime

import (
	"encoding/json"
	"hash/fnv"
	"strconv"

	v1 "k8s.io/api/core/v1"
)

// ContainerHash is the hash that decides whether a container still is what its
// spec says: when it differs from the one recorded on the instance, that
// container is replaced. It is kubelet's to the bit (as of 1.36: 32 bit FNV-1a
// over the dump of the JSON of name and image), so pods may pass from a kubelet
// to this library and back without a restart, and it names its two fields, so
// that no field added to the API can change it.
func ContainerHash(c *v1.Container) uint64 {
	// Kubelet encodes a map, whose keys come sorted. Two strings always encode.
	picked, _ := json.Marshal(struct {
		Image string `json:"image"`
		Name  string `json:"name"`
	}{c.Image, c.Name})
	// What k8s.io/utils/dump makes of it by reflection, at ten times the cost: each pod
	// is asked for its hash whenever it is looked at.
	text := append(make([]byte, 0, 16+4*len(picked)), "([]uint8)["...)
	for i, b := range picked {
		if i > 0 {
			text = append(text, ' ')
		}
		text = strconv.AppendUint(text, uint64(b), 10)
	}
	text = append(text, ']')
	h := fnv.New32a()
	_, _ = h.Write(text)
	return uint64(h.Sum32())
}
