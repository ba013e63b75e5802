// Package podspec computes what follows from the definition of a pod: the origin and the class of a
// pod, its containers, restarts, grace periods, resources and hashes, as kubelet does.
//
// The functions are pure: they do no I/O, keep no state, and do not change their arguments. The
// package imports nothing else of this module, and every package of the module may import it. What
// a container runtime reports of a pod is in package runtime.
//
//   - Origin and kind: [IsStatic], [IsMirror], [IsCritical], [QOSClass].
//   - Containers: [Containers], [FindContainer], [IsSidecar], [ShouldRestart], [UsedVolumes].
//   - Times: [GracePeriod], [Seconds].
//   - What an instance was created with: [ContainerHash], [ResizeHash].
//   - Variables and the downward API: [Expand], [MetadataField], [ResourceField].
//   - Room on a node: [Requests], [Limits], [LimitOf], [Shortages], [PodShortage].
//   - Resizes (KEP-1287, KEP-5419): [Resizable], [WithResources], [HeldByPod], [ResizeMessage].
//   - Bounds for pods that are not trusted: [MaxContainers], [BoundedReferences], [CheckQuantity].
package podspec
