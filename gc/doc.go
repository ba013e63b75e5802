// Package gc removes what pods leave behind in the runtime: dead containers,
// dead sandboxes and log directories.
//
// # What is kept
//
// Of a pod that is not gone, each container keeps its newest dead instance,
// since restart counts, last states and logs are read from it, and the newest
// sandbox stays. Of a pod that is gone nothing is kept once nothing of it runs. Running containers
// and ready sandboxes are never touched.
//
// # How it works
//
// [Plan] decides over values. [Collector] lists the runtime, carries the plan
// out and removes the log directories of gone pods; it does so once a minute,
// kubelet's period, and at once after [Collector.Kick]. One container that
// cannot be removed does not keep the others, and is tried again after 1, 2, 4… seconds;
// kubelet waits for the next minute.
package gc
