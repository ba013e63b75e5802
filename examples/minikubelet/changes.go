package main

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// outline is what a line about a pod is made of. Only a change of it is news.
type outline struct {
	status       string
	ready, total int
	restarts     int
	message      string
}

// outlinesOf returns the outline of each pod by "namespace/name".
func outlinesOf(pods []*v1.Pod) map[string]outline {
	out := make(map[string]outline, len(pods))
	for _, pod := range pods {
		s := summarize(pod)
		out[pod.Namespace+"/"+pod.Name] = outline{s.status, s.ready, s.total, s.restarts, s.message}
	}
	return out
}

// changes returns a line for each pod that changed, sorted by name.
func changes(before, now map[string]outline) []string {
	var lines []string
	for name, is := range now {
		was, known := before[name]
		// A message alone is no news: some count, or have the time.
		same := was
		same.message = is.message
		if known && same == is {
			continue
		}
		line := name + ": "
		if known && was.status != is.status {
			line += was.status + " → "
		}
		line += fmt.Sprintf("%s (%d/%d)", is.status, is.ready, is.total)
		if is.restarts > was.restarts {
			line += fmt.Sprintf(", restarts: %d", is.restarts)
		}
		if is.message != "" {
			line += ": " + strings.Join(strings.Fields(is.message), " ")
		}
		lines = append(lines, line)
	}
	for name, was := range before {
		if _, there := now[name]; !there {
			lines = append(lines, name+": "+was.status+" → gone")
		}
	}
	slices.Sort(lines)
	return lines
}
