package statsmetrics

import (
	"strings"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// ofContainers reports whether a name is one of the metrics of containers: a runtime has no
// others.
func ofContainers(name string) bool { return strings.HasPrefix(name, "container_") }

// writeFamily writes a family of a runtime. A sample is about the container or sandbox of its
// ID: the labels that identify it are from there, whatever the runtime has for them. Samples of
// IDs that are not known are left out, and of samples with the same labels all but the first.
func writeFamily(t *text, f *runtime.MetricFamily, byID map[string][]label) {
	kind := gauge
	if f.Counter {
		kind = counter
	}
	t.family(f.Name, kind, f.Help)
	seen := map[string]struct{}{}
	var labels []label
	var key []byte
	for i := range f.Samples {
		s := &f.Samples[i]
		id := s.ContainerID
		if id == "" {
			id = s.SandboxID
		}
		of, ok := byID[id]
		if !ok {
			continue
		}
		labels, key = labels[:0], append(key[:0], id...)
		for j, name := range f.Labels {
			if !identifies(name) {
				labels = append(labels, label{name, s.LabelValues[j]})
				key = append(append(key, 0), s.LabelValues[j]...)
			}
		}
		if _, twice := seen[string(key)]; !twice {
			seen[string(key)] = struct{}{}
			t.sample(s.Value, s.Time, of, labels)
		}
	}
}

// identifies reports whether a label says what a series is about.
func identifies(label string) bool {
	switch label {
	case "container", "id", "image", "name", "namespace", "pod":
		return true
	}
	return false
}
