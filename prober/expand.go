package prober

import (
	"strings"

	v1 "k8s.io/api/core/v1"
)

// expandAll puts the values of the container's variables into a command. Only
// values that stand in the spec are known here, as in kubelet; others are empty.
func expandAll(command []string, env []v1.EnvVar) []string {
	values := make(map[string]string, len(env))
	for i := range env {
		values[env[i].Name] = env[i].Value
	}
	out := make([]string, len(command))
	for i := range command {
		out[i] = expand(command[i], values)
	}
	return out
}

// expand replaces $(NAME) by the value of NAME where there is one, and $$ by $ (API
// reference, container command). Everything else stays as it is.
func expand(s string, values map[string]string) string {
	var out strings.Builder
	for {
		i := strings.IndexByte(s, '$')
		if i < 0 || i == len(s)-1 {
			out.WriteString(s)
			return out.String()
		}
		out.WriteString(s[:i])
		s = s[i:]
		if s[1] == '$' {
			out.WriteByte('$')
			s = s[2:]
			continue
		}
		if s[1] == '(' {
			if end := strings.IndexByte(s, ')'); end > 0 {
				if v, ok := values[s[2:end]]; ok {
					out.WriteString(v)
				} else {
					out.WriteString(s[:end+1])
				}
				s = s[end+1:]
				continue
			}
		}
		out.WriteByte('$')
		s = s[1:]
	}
}
