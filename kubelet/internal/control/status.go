package control

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// StatusPath answers GET with the state of the agent, as [Status] in JSON.
const StatusPath = "/status"

// NodePath answers GET with the node as an API server has it, or would have it, a v1.Node in JSON.
const NodePath = "/node"

// Status is the state of an agent and of its node.
type Status struct {
	NodeName string `json:"nodeName"`
	// Version is that of the program, and PID its process.
	Version string `json:"version"`
	PID     int    `json:"pid"`
	// Manifests is the file or directory of the manifests, "" if there is none.
	Manifests string `json:"staticPodPath,omitempty"`
	// Unhealthy is what a restart of the agent may help against, "" if that is nothing.
	Unhealthy string `json:"unhealthy,omitempty"`
	// NotReady is why the node cannot start pods, "" if it can.
	NotReady string `json:"notReady,omitempty"`
	// Runtime is the name and the version of the container runtime, "" while they are not known.
	Runtime string `json:"runtime,omitempty"`
	// Pressure are the conditions of what the node is short of.
	Pressure []v1.NodeConditionType `json:"pressure"`
	Sources  []SourceStatus         `json:"sources"`
	// Thresholds are those of evictions, and Certificates those that the node has by now.
	Thresholds   []Threshold   `json:"thresholds,omitempty"`
	Certificates []Certificate `json:"certificates,omitempty"`
}

// Threshold is what has to be available of a resource. While less is, pods are evicted.
type Threshold struct {
	// Signal is such as "memory.available".
	Signal string `json:"signal"`
	// Value is an amount such as "100Mi", or a percentage of the capacity such as "10%".
	Value string `json:"value"`
	// GracePeriod is how long less may be available, such as "1m30s"; "" if the threshold is a hard one.
	GracePeriod string `json:"gracePeriod,omitempty"`
}

// Certificate is a certificate of the node.
type Certificate struct {
	// Name is "client" for that of its requests to the API server, and "serving" for that of its port.
	Name    string    `json:"name"`
	Expires time.Time `json:"expires"`
}

// SourceStatus is the state of a source of pods.
type SourceStatus struct {
	Name string `json:"name"`
	// Delivered means that the source has delivered its pods.
	Delivered bool `json:"delivered"`
	Pods      int  `json:"pods"`
	// Rejected is the number of pods that it has delivered and that are not desired.
	Rejected int `json:"rejected,omitempty"`
}
