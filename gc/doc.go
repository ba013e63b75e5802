// Package gc removes what pods leave behind in a container runtime: dead containers,
// dead sandboxes and log directories.
//
// # What is kept
//
// A pod is gone when it is not desired any more and no worker has it. Of a pod that
// is not gone, the newest dead instance of each container is kept, because restart
// counts, last states and logs are read from it; [Policy] can keep more. Its newest
// sandbox is kept, too. Of a pod that is gone nothing is kept once nothing of it runs.
// Running containers and ready sandboxes are never removed.
//
// # How it works
//
// [GarbageCollector] is the interface of this package and [Collector] the default. The
// collector lists the runtime, calls [Plan] or [Options.Plan], which decides over
// values, and carries the plan out. It does so once a minute, as kubelet, unless
// [Options.Idle] reports that nothing has happened, and at once after [Collector.Kick]. A container that cannot be removed does not prevent the
// removal of others. It is tried again after 1, 2, 4… seconds, up to the period;
// kubelet waits for the next minute.
package gc
