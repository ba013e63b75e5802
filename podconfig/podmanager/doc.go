// Package podmanager holds the desired state of a node: the pods that should run
// on it.
//
// # Vocabulary
//
//   - A static pod comes from a file, a URL or any source other than an API server.
//   - A mirror pod is the API server's copy of a static pod. It has the namespace and
//     name of the static pod, a UID of its own, and the annotation
//     kubernetes.io/config.mirror. It never runs.
//   - A full name is a namespace and a name.
//   - A mirror pod is orphaned when no pod has its full name.
//
// # Use
//
// An agent applies the changes of a pod configuration to a [Manager]: [Store.Set]
// for pods that are added or updated, [Store.Remove] for pods that are removed. All
// other parts look pods up in it. It also relates static pods to their mirror pods.
//
// # Guarantees
//
//   - A [Store] keeps everything in memory and starts no goroutine. So tests use it
//     as it is, and there is no fake.
//   - All methods are safe for concurrent use. None of them blocks.
//   - Lists are sorted by namespace, name and UID. They never change after they were
//     returned.
//   - Reading a list copies no pods. The first change after it copies the list of
//     pointers, once.
//   - Two pods may have one full name for a while, as when a pod is replaced. Then
//     [Store.ByName] returns the pod that was set last.
package podmanager
