// Package gc removes what pods leave behind in a container runtime: dead containers,
// dead sandboxes and log directories, and images that no pod uses.
//
// # What is kept
//
// A pod is gone when it is not desired any more and no worker has it. Of a pod that
// is not gone, the newest dead instance of each container is kept, because restart
// counts, last states and logs are read from it; [Policy] can keep more, or fewer on the whole node. Its newest
// sandbox is kept, too. Of a pod that is gone and does not run, nothing is kept except its
// logs, which can be kept for a while. Running containers and ready sandboxes are never
// removed.
//
// # How it works
//
// [Collector] is the interface of this package, [ContainerGC] the default, and [Base] removes nothing. The
// collector lists the runtime, calls [Plan] or [Options.Plan], which is a function of
// values, and carries the plan out. It does so once a minute, as kubelet, less often while
// nothing happens, and at once after [ContainerGC.Kick]. A
// container that cannot be removed does not prevent the removal of others. Its removal is
// tried again after 1, 2, 4… seconds, up to the period; kubelet waits for the next minute.
//
// # Images
//
// [ImageCollector] is the interface of a collector of images and [ImageGC] the
// default, on a runtime that is a [runtime.ImageService]. Every 5 minutes it lists the
// images, calls [PlanImages] or [ImageOptions.Plan], and carries the plan out. Images that
// were not used for longer than MaxAge are removed. If the file system of images has reached
// the high threshold, other images are removed until it is at the low one, the least
// recently used image first. An image is never removed if it is pinned, if sandboxes are
// made from it, or if a container uses it, dead or alive.
//
// The file system is measured after each removal. The sizes of images are only an
// estimate of how many removals are needed: images share layers, and runtimes report
// compressed sizes. If the file system is not at the low threshold in the end, the
// collection fails, with an event FreeDiskSpaceFailed.
//
// A pod that is being started uses its image before a container shows it. The runtime
// keeps such an image, see [runtime.ImageService]. So no collection has to wait for a start,
// and no start for a collection. Only a start with the image that is being removed waits,
// for this one removal.
//
// The times of use are kept in [ImageOptions.StateFile] for the next agent. The file is
// written when an image comes, goes, or comes into or out of use, and not as time passes.
package gc
