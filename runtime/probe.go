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

// ProbeResult is a change of what a probe has found about one instance of a
// container.
type ProbeResult struct {
	Pod       PodRef
	Container string
	// ContainerID is the instance that was probed.
	ContainerID ContainerID
	Kind        ProbeKind
	// Healthy means that the instance has started, is ready, or is alive.
	Healthy bool
	// Message is the output of the last attempt; it may come from the container.
	Message string
}

// ProbeResults is what the probes of containers have found. Started, Ready and
// Unhealthy are called only for containers that have a probe of that kind; an
// instance that was not probed yet has neither passed nor failed.
type ProbeResults interface {
	// HasProbe reports whether the container has a probe of the kind, in its spec or
	// by the word of a probe handler of the agent.
	HasProbe(pod *v1.Pod, c *v1.Container, kind ProbeKind) bool
	// Started reports whether the startup probe has succeeded.
	Started(id ContainerID) bool
	// Ready reports whether the readiness probe succeeds.
	Ready(id ContainerID) bool
	// Unhealthy reports whether the liveness or the startup probe has failed for
	// good, and then which: the container is to be restarted.
	Unhealthy(id ContainerID) (kind ProbeKind, yes bool)
}

// HasProbe reports whether the container has a probe of the kind according to the
// results, which may be nil: then no container has one.
func HasProbe(results ProbeResults, pod *v1.Pod, c *v1.Container, kind ProbeKind) bool {
	return results != nil && results.HasProbe(pod, c, kind)
}

// SpecProbe returns the probe of the kind in the container's spec, or nil.
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
