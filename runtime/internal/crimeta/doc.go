// Package crimeta has the metadata that kubelet, and this module, give to the
// sandboxes and containers of pods in a CRI runtime: labels, annotations and the
// paths of logs. Each agent finds the pods of the other by them.
//
// Its functions are pure and safe for concurrent use.
package crimeta
