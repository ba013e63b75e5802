// Package podresources serves kubelet's pod resources API on a unix socket: which devices, CPUs, memory and claims
// containers hold, for monitors of devices and for schedulers that know the hardware. It has PodResourcesLister of v1
// (List, Get, GetAllocatableResources) and of v1alpha1 (List).
//
// # Vocabulary
//
//   - [Resources] are what a container holds, or a pod with resources as a whole, or what the node has.
//   - A [Source] reports those of one part of the agent, such as a device manager. The server joins those of all
//     sources.
//
// # Guarantees
//
//   - As in kubelet, the answers have the pods that hold resources, not those that have ended, and of their init
//     containers the sidecars only.
//   - Requests above the rate are refused with the code ResourceExhausted. The rate is kubelet's, 100 in a second, and
//     10 at once.
//   - A socket that an earlier agent has left is replaced in one step. The socket stays when Run returns, as kubelet's
//     does.
//   - A panic of a source fails the request.
//   - A server without requests costs one goroutine.
//
// v1alpha1 also leaves out pods that have ended, which kubelet has there.
package podresources
