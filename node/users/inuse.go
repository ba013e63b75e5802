package users

import (
	"strconv"
	"strings"
)

// parseIDMap returns the ranges of host IDs in a file such as /proc/self/uid_map. The map of the initial user namespace
// has none. Lines that are none are left out.
func parseIDMap(text string) (out []Range) {
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) != 3 {
			continue
		}
		first, err := strconv.ParseUint(fields[1], 10, 32)
		length, lengthErr := strconv.ParseUint(fields[2], 10, 32)
		if err != nil || lengthErr != nil || length == 0 || first+length > idSpace {
			continue
		}
		if first == 0 && length == idSpace-1 { // of the host itself
			continue
		}
		out = append(out, Range{First: uint32(first), Length: uint32(length)})
	}
	return out
}
