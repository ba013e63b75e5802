package prommetrics

import (
	goruntime "runtime"
	"runtime/debug"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeletkit/kubeletkit/metrics/prometheus/internal/collector"
)

// RegisterNode registers kubelet's metrics about itself: kubelet_node_name, and
// kubernetes_build_info with the version of the program, as in "v1.36.0". Unknown facts of the
// build are empty.
func RegisterNode(reg prometheus.Registerer, node, version string) error {
	name := collector.Gauges(collector.Kubelet("node_name", "The node's name. The count is always 1."), "node")
	name.WithLabelValues(node).Set(1)
	commit, state, date := "", "", ""
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				commit = s.Value
			case "vcs.time":
				date = s.Value
			case "vcs.modified":
				state = map[string]string{"false": "clean", "true": "dirty"}[s.Value]
			}
		}
	}
	major, minor := majorMinor(version)
	build := collector.Gauges(prometheus.Opts{
		Name: "kubernetes_build_info",
		Help: "[BETA] A metric with a constant '1' value labeled by major, minor, git version, git commit, git tree " +
			"state, build date, Go version, and compiler from which Kubernetes was built, and platform on which it " +
			"is running.",
	}, "major", "minor", "git_version", "git_commit", "git_tree_state", "build_date", "go_version",
		"compiler", "platform")
	build.WithLabelValues(major, minor, version, commit, state, date, goruntime.Version(), goruntime.Compiler,
		goruntime.GOOS+"/"+goruntime.GOARCH).Set(1)
	return collector.Register(reg, "node", collector.Group{name, build})
}

// RegisterFeature registers kubernetes_feature_enabled, and returns a function that sets a feature of the stage
// "ALPHA", "BETA" or "DEPRECATED", or "" for GA.
func RegisterFeature(reg prometheus.Registerer) (set func(name, stage string, enabled bool), err error) {
	features := collector.Gauges(prometheus.Opts{
		Name: "kubernetes_feature_enabled",
		Help: "[BETA] This metric records the data about the stage and enablement of a k8s feature.",
	}, "name", "stage")
	return func(name, stage string, enabled bool) {
		value := 0.0
		if enabled {
			value = 1
		}
		features.WithLabelValues(name, stage).Set(value)
	}, collector.Register(reg, "features", collector.Group{features})
}

// majorMinor returns the first two numbers of a version such as "v1.36.0"; "" for what is not
// there.
func majorMinor(version string) (major, minor string) {
	parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	if len(parts) < 2 || parts[0] == "" || strings.Trim(parts[0], "0123456789") != "" {
		return "", ""
	}
	return parts[0], strings.TrimRight(parts[1], "+")
}
