package runtime

import (
	"encoding/json"
	"hash/fnv"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/dump"
)

// ContainerHash is the hash that decides whether a container still is what its
// spec says: when it differs from the one recorded on the instance, that
// container is replaced. It is kubelet's to the bit (as of 1.36: 32 bit FNV-1a
// over the dump of the JSON of name and image), so pods may pass from a kubelet
// to this library and back without a restart, and it names its two fields, so
// that no field added to the API can change it.
func ContainerHash(c *v1.Container) uint64 {
	// A map of two strings always encodes; its keys are sorted.
	picked, _ := json.Marshal(map[string]string{"name": c.Name, "image": c.Image})
	h := fnv.New32a()
	_, _ = h.Write([]byte(dump.ForHash(picked)))
	return uint64(h.Sum32())
}
