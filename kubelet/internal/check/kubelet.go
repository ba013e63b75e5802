package check

import "slices"

// Place is where a check has looked for a kubelet.
type Place struct {
	// What is looked for, and where.
	What string `json:"what"`
	// Found is true if it is there.
	Found bool `json:"found"`
}

// FlagsOfAKubelet are the flags that say where the settings or the pods of a kubelet are.
func FlagsOfAKubelet() []string {
	return []string{"--config", "--config-dir", "--kubeconfig", "--bootstrap-kubeconfig", "--pod-manifest-path",
		"--manifest-url"}
}

// HasKubelet reports whether there is a kubelet, or an earlier agent, to compare with.
func (r Report) HasKubelet() bool {
	return slices.ContainsFunc(r.LookedFor, func(p Place) bool { return p.Found })
}
