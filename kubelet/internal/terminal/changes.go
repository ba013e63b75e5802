package terminal

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// outline is the content of a line about a pod. A line is written when it changes.
type outline struct {
	status       string
	ready, total int
	restarts     int
	message      string
}

// predecessor follows the name of a pod whose successor has the same name.
const predecessor = " (predecessor)"

// outlinesOf returns the outline of each pod by "namespace/name". Of two pods of one
// name, the one that is terminating is the predecessor of the other.
func outlinesOf(pods []*v1.Pod) map[string]outline {
	named := map[string]int{}
	for _, pod := range pods {
		named[pod.Namespace+"/"+pod.Name]++
	}
	out := make(map[string]outline, len(pods))
	for _, pod := range pods {
		name := pod.Namespace + "/" + pod.Name
		if named[name] > 1 && pod.DeletionTimestamp != nil {
			name += predecessor
		}
		s := Summarize(pod)
		out[name] = outline{s.Status, s.Ready, s.Total, s.Restarts, s.Message}
	}
	return out
}

// outlinesNamed returns the outlines of pods of these names.
func outlinesNamed(all map[string]outline, names Names) map[string]outline {
	named := map[string]outline{}
	for name := range names {
		for _, key := range [...]string{name.String(), name.String() + predecessor} {
			if o, ok := all[key]; ok {
				named[key] = o
			}
		}
	}
	return named
}

// changes returns a line for each pod that changed, sorted by name.
func changes(before, now map[string]outline) []string {
	var lines []string
	for name, is := range now {
		was, known := before[name]
		// A message alone is no change: some contain a counter or the time.
		same := was
		same.message = is.message
		if known && same == is {
			continue
		}
		line := Escape(name) + ": "
		if known && was.status != is.status {
			line += was.status + " → "
		}
		line += fmt.Sprintf("%s (%d/%d)", is.status, is.ready, is.total)
		if is.restarts > was.restarts {
			line += fmt.Sprintf(", restarts: %d", is.restarts)
		}
		if is.message != "" {
			line += ": " + Escape(strings.Join(strings.Fields(is.message), " "))
		}
		lines = append(lines, line)
	}
	for name, was := range before {
		if _, there := now[name]; !there {
			lines = append(lines, Escape(name)+": "+was.status+" → gone")
		}
	}
	slices.Sort(lines)
	return lines
}
