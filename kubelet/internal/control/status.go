package control

import v1 "k8s.io/api/core/v1"

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
