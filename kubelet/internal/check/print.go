package check

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// Print writes the report for a person: in each area first what is as it was, in one line, and then
// the rest with the reasons. What stands against a start of the agent has a mark. Without a kubelet it begins with
// the places that have none.
func Print(out io.Writer, r Report) error {
	var b strings.Builder
	if !r.HasKubelet() && len(r.LookedFor) > 0 {
		b.WriteString("NO KUBELET to compare with. There is none of these:\n")
		for _, p := range r.LookedFor {
			fmt.Fprintf(&b, "  %s\n", p.What)
		}
	}
	for _, area := range []string{AreaSettings, AreaMachine, AreaState, AreaPods} {
		var same []string
		var rest []Finding
		for _, f := range r.Findings {
			switch {
			case f.Area != area:
			case f.Why == "" && !f.Blocks:
				if text := f.Setting; !slices.Contains(same, text) {
					same = append(same, text)
				}
			default:
				rest = append(rest, f)
			}
		}
		if len(same)+len(rest) == 0 {
			continue
		}
		fmt.Fprintf(&b, "%s\n", strings.ToUpper(area))
		if len(same) > 0 {
			verb := map[string]string{AreaSettings: "act", AreaPods: "run on"}[area]
			fmt.Fprintf(&b, "  %s: %s\n", verb, strings.Join(same, ", "))
		}
		for _, f := range rest {
			mark := " "
			if f.Blocks {
				mark = "!"
			}
			fmt.Fprintf(&b, "%s %s: %s: %s\n", mark, f.Setting, f.Verdict, f.Why)
			if f.Do != "" {
				fmt.Fprintf(&b, "    to do: %s\n", f.Do)
			}
		}
	}
	for _, text := range r.NotChecked {
		fmt.Fprintf(&b, "not checked: %s\n", text)
	}
	_, err := io.WriteString(out, b.String())
	return err
}
