package translate

import "github.com/kubeletkit/kubeletkit/runtime"

// expandAll expands each of the strings.
func expandAll(all []string, lookup func(string) (string, bool)) []string {
	if len(all) == 0 {
		return nil
	}
	out := make([]string, len(all))
	for i, s := range all {
		out[i] = runtime.Expand(s, lookup)
	}
	return out
}
