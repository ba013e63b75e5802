package check

import "slices"

// Verdict is what becomes of a setting, of a file or of a pod.
type Verdict string

// Verdicts.
const (
	// Acts, Ignored and Refused are verdicts of settings and of the machine. The agent does not start if
	// something is refused.
	Acts    Verdict = "acts"
	Ignored Verdict = "ignored"
	Refused Verdict = "refused"
	// Kept and Lost are verdicts of files: whether the agent continues with them.
	Kept Verdict = "kept"
	Lost Verdict = "lost"
	// RunsOn, Started, Restarted and Stopped are verdicts of pods.
	RunsOn    Verdict = "runs on"
	Started   Verdict = "started"
	Restarted Verdict = "restarted"
	Stopped   Verdict = "stopped"
)

// Areas of findings, in the order of a report.
const (
	AreaSettings = "settings"
	AreaMachine  = "machine"
	AreaState    = "state"
	AreaPods     = "pods"
)

// Finding is what was found out about one thing.
type Finding struct {
	Area string `json:"area"`
	// Setting is the name of a setting, the path of a file in the root directory, or namespace/name of a pod.
	Setting string  `json:"setting"`
	Verdict Verdict `json:"verdict"`
	// Why says why, and what follows; "" if nothing does.
	Why string `json:"why,omitempty"`
	// Do says what to do about it; "" for nothing.
	Do string `json:"do,omitempty"`
	// Blocks means that the agent would not start, that a pod would be restarted or stopped, or could not
	// be started again, or that a setting about security would not hold.
	Blocks bool `json:"blocks,omitempty"`
}

// Report is the result of a check.
type Report struct {
	// LookedFor are the places of a kubelet. If it is in none of them, the findings are about the agent alone.
	LookedFor []Place   `json:"lookedFor,omitempty"`
	Findings  []Finding `json:"findings"`
	// NotChecked are the things that were not looked at, with the reason.
	NotChecked []string `json:"notChecked,omitempty"`
}

// Blocking returns the findings that stand against a start of the agent.
func (r Report) Blocking() []Finding {
	return slices.DeleteFunc(slices.Clone(r.Findings), func(f Finding) bool { return !f.Blocks })
}
