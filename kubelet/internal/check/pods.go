package check

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// Pod is a pod of a manifest, or one that runs.
type Pod struct {
	types.NamespacedName
	UID types.UID
	// Source is kubelet's name of the source: file, http or api; "" if it is unknown.
	Source string
}

// Pods compares the static pods, with the UIDs that the agent gives them, with the pods that run. cluster
// is true if the agent has an API server.
func Pods(static, running []Pod, cluster bool) (out []Finding) {
	add := func(p Pod, f Finding) {
		f.Area, f.Setting = AreaPods, p.String()
		out = append(out, f)
	}
	desired := map[types.NamespacedName]Pod{}
	for _, p := range static {
		desired[p.NamespacedName] = p
	}
	runs := map[types.NamespacedName]bool{}
	for _, p := range running {
		runs[p.NamespacedName] = true
		is, isStatic := desired[p.NamespacedName]
		switch {
		case isStatic && is.UID == p.UID:
			add(p, Finding{Verdict: RunsOn})
		case isStatic:
			add(p, Finding{
				Verdict: Restarted, Blocks: true, Why: "it runs with the UID " + string(p.UID) +
					", and its manifest has another one, or is not that of the containers that run",
				Do: "give the manifest this metadata.uid, if it is the same pod",
			})
		case p.Source == "api" && cluster:
			add(p, Finding{Verdict: RunsOn, Why: "as long as the API server has it"})
		case p.Source == "api":
			add(p, Finding{Verdict: Stopped, Blocks: true, Why: "it is from an API server, and none is given",
				Do: "give --kubeconfig"})
		default:
			add(p, Finding{Verdict: Stopped, Blocks: true, Why: "it is in no manifest that was read",
				Do: "give --pod-manifest-path, or end the pod first"})
		}
	}
	for _, p := range static {
		if !runs[p.NamespacedName] {
			add(p, Finding{Verdict: Started, Why: "it does not run now"})
		}
	}
	slices.SortFunc(out, func(a, b Finding) int { return cmp.Compare(a.Setting, b.Setting) })
	return out
}
