package checkpoint

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
)

// appendDump appends what dump.ForHash of package k8s.io/utils/dump returns for the data, which takes 50 ms for 1 MiB
// of answers.
func appendDump(b []byte, data checkpointData) []byte {
	b = append(b, "(checkpoint.checkpointData){PodDeviceEntries:([]checkpoint.PodDevicesEntry)"...)
	b = appendList(b, data.PodDeviceEntries, func(b []byte, e PodDevicesEntry) []byte {
		b = append(append(b, "{PodUID:(string)"...), e.PodUID...)
		b = append(append(b, " ContainerName:(string)"...), e.ContainerName...)
		b = append(append(b, " ResourceName:(string)"...), e.ResourceName...)
		b = append(b, " DeviceIDs:(checkpoint.DevicesPerNUMA)"...)
		b = appendMap(b, e.DeviceIDs, func(b []byte, node int64) []byte { return strconv.AppendInt(b, node, 10) })
		b = append(b, " AllocResp:([]uint8)"...)
		b = slices.Grow(b, 4*len(e.AllocResp)) // the rest is small
		b = appendList(b, e.AllocResp, func(b []byte, v byte) []byte { return strconv.AppendUint(b, uint64(v), 10) })
		return append(b, '}')
	})
	b = append(b, " RegisteredDevices:(map[string][]string)"...)
	b = appendMap(b, data.RegisteredDevices, appendText)
	return append(b, '}')
}

func appendText(b []byte, text string) []byte { return append(b, text...) }

func appendList[T any](b []byte, list []T, each func([]byte, T) []byte) []byte {
	if list == nil {
		return append(b, "<nil>"...)
	}
	b = append(b, '[')
	for i, v := range list {
		if i > 0 {
			b = append(b, ' ')
		}
		b = each(b, v)
	}
	return append(b, ']')
}

func appendMap[K cmp.Ordered](b []byte, m map[K][]string, key func([]byte, K) []byte) []byte {
	if m == nil {
		return append(b, "<nil>"...)
	}
	b = append(b, "map["...)
	for i, k := range slices.Sorted(maps.Keys(m)) {
		if i > 0 {
			b = append(b, ' ')
		}
		b = appendList(append(key(b, k), ':'), m[k], appendText)
	}
	return append(b, ']')
}
