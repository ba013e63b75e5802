package podspec

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// HugePageSize returns the page size of a resource in the notation of the files of cgroups: "2MB" for
// hugepages-2Mi. ok is false if the resource is not huge pages of a size.
func HugePageSize(name v1.ResourceName) (size string, ok bool) {
	suffix, ok := strings.CutPrefix(string(name), v1.ResourceHugePagesPrefix)
	if !ok {
		return "", false
	}
	q, err := ParseQuantity(suffix)
	if err != nil || q.Sign() <= 0 {
		return "", false
	}
	n, unit := q.Value(), 0
	units := [...]string{"B", "KB", "MB", "GB", "TB", "PB"}
	for n%1024 == 0 && unit < len(units)-1 {
		n /= 1024
		unit++
	}
	return fmt.Sprintf("%d%s", n, units[unit]), true
}
