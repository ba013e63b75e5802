// Package podsync is the default podworkers.PodSyncer: what is done for one pod
// each time its worker turns.
//
// # Steps
//
// SyncPod generates the pod's API status from what the runtime says, ends a pod
// that has finished or run past its active deadline, makes its directory,
// sets up its volumes, looks up its pull secrets, has its probes run and hands the
// rest to the runtime. If the runtime had something to report, such as a back-off,
// the status is generated once more, so that the reason shows at once and not a
// sync later.
//
// SyncTerminatingPod stops the probes that could restart a container, has the
// runtime stop the pod, and returns nil only when a read made after that shows
// nothing of it running. SyncTerminatedPod takes down the volumes and settles
// the final status. SyncTerminatingOrphan stops a pod of which only the runtime
// knows.
//
// # Directories
//
// A pod's directory is <pods dir>/<uid>, as kubelet lays it out. It stays until
// the pod is gone from the desired state; package syncloop removes it then.
//
// # Guarantees
//
// The Syncer keeps nothing but the last waiting reasons of each pod and when its
// volumes were measured, which are dropped when the pod has terminated. It is safe for concurrent use by
// different pods; for one pod the worker calls one method at a time.
package podsync
