package translate

import (
	"fmt"

	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// maxPath is the length of a path in bytes: PATH_MAX of Linux.
const maxPath = 4096

// expandAll expands each of the strings. No process can have more than
// [podspec.MaxArguments] of them.
func expandAll(what string, all []string, lookup func(string) (string, bool)) ([]string, error) {
	if len(all) == 0 {
		return nil, nil
	}
	out, left := make([]string, len(all)), podspec.MaxArguments
	for i, s := range all {
		var err error
		if out[i], err = podspec.ExpandLimit(s, left, lookup); err != nil {
			return nil, fmt.Errorf("%s[%d]: %w", what, i, err)
		}
		left -= len(out[i])
	}
	return out, nil
}
