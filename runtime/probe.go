package runtime

import v1 "k8s.io/api/core/v1"

// ProbeKind is the kind of a probe.
type ProbeKind string

// The kinds of probes.
const (
	StartupProbe   ProbeKind = "startup"
	LivenessProbe  ProbeKind = "liveness"
	ReadinessProbe ProbeKind = "readiness"
)

// ProbeResult is a change of a probe's result for one instance of a container.
type ProbeResult struct {
	Pod       PodRef
	Container string
	// ContainerID is the instance that was probed.
	ContainerID ContainerID
	Kind        ProbeKind
	// Healthy means that the probe succeeds: the instance has started, is ready, or is
	// alive.
	Healthy bool
	// Message is the output of the last attempt. The container may have written it.
	Message string
}

// ProbeResults are the current results of probes. They are safe for concurrent use.
//
// Started, Ready and Unhealthy are called only for containers that have a probe of
// that kind. An instance that was not probed yet has neither succeeded nor failed: all
// three return false.
type ProbeResults interface {
	// HasProbe reports whether the container has a probe of the kind, in its spec or from
	// a probe handler of the embedder.
	HasProbe(pod *v1.Pod, c *v1.Container, kind ProbeKind) bool
	// Started reports whether the startup probe has succeeded.
	Started(id ContainerID) bool
	// Ready reports whether the readiness probe succeeds.
	Ready(id ContainerID) bool
	// Unhealthy reports whether the liveness or the startup probe has reached its
	// failure threshold, and which of them: the container has to be restarted.
	Unhealthy(id ContainerID) (kind ProbeKind, yes bool)
}

// HasProbe is results.HasProbe, and false if results is nil.
func HasProbe(results ProbeResults, pod *v1.Pod, c *v1.Container, kind ProbeKind) bool {
	return results != nil && results.HasProbe(pod, c, kind)
}

// SpecProbe returns the probe of the kind in the container's spec. It is nil if there
// is none.
func SpecProbe(c *v1.Container, kind ProbeKind) *v1.Probe {
	switch kind {
	case StartupProbe:
		return c.StartupProbe
	case LivenessProbe:
		return c.LivenessProbe
	case ReadinessProbe:
		return c.ReadinessProbe
	default:
		return nil
	}
}
