package prober

import (
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// expandAll puts the values of the container's variables into a command. Only
// values that stand in the spec are known here, as in kubelet; others are empty.
func expandAll(command []string, env []v1.EnvVar) []string {
	values := make(map[string]string, len(env))
	for i := range env {
		values[env[i].Name] = env[i].Value
	}
	lookup := func(name string) (string, bool) { v, ok := values[name]; return v, ok }
	out := make([]string, len(command))
	for i := range command {
		out[i] = runtime.Expand(command[i], lookup)
	}
	return out
}
