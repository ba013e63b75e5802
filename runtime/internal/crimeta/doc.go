// Package crimeta has the metadata of the sandboxes and containers of pods in a CRI runtime:
// labels, annotations and the paths of logs. They are kubelet's, so that this agent and a
// kubelet find the pods of each other.
//
// Its functions are pure and safe for concurrent use.
package crimeta
