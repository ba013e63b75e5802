// Package server serves the read-only part of the kubelet's HTTP API:
//
//   - /healthz answers "ok", or 500 and what is wrong;
//   - /pods answers a v1.PodList of the node's pods with their status.
//
// The read-only port has no authentication; bind it to loopback unless the
// network is trusted.
package server
