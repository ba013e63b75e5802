package prommetrics

import "strings"

// majorMinor returns the first two numbers of a version such as "v1.36.0"; "" for what is not
// there.
func majorMinor(version string) (major, minor string) {
	parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	if len(parts) < 2 || parts[0] == "" || strings.Trim(parts[0], "0123456789") != "" {
		return "", ""
	}
	return parts[0], strings.TrimRight(parts[1], "+")
}
