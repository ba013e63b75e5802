// Package dra has the devices of claims prepared for pods: dynamic resource allocation (KEP-4381), as kubelet's DRA
// manager does.
//
// # Vocabulary
//
//   - A claim is a ResourceClaim: a request for devices, such as a GPU. The scheduler allocates devices to it, and
//     reserves it for pods.
//   - A driver manages the devices of one kind on the node. It prepares a claim, which makes the devices usable and
//     returns their names of the Container Device Interface (CDI), and unprepares it. Package dra/plugin has the
//     drivers that are plugins; one in this process is a [Driver].
//   - A slice is a ResourceSlice: the list of devices that a driver has published in the API. The scheduler reads it.
//   - The state is the file dra_manager_state, in kubelet's format: which claims are prepared, for which pods, with
//     which devices.
//
// # Walk through
//
// The [Manager] joins the life of pods. A pod without claims costs a comparison in each step.
//
//   - Prepare reads the claims of the pod from the API server, checks that they are allocated, and reserved for this
//     pod, writes down that the pod uses them, and has the drivers prepare those that are not.
//   - EditContainer hands the runtime the CDI names of the devices that the container may use: those of its claims, or
//     of a single request of a claim, and those of its extended resources that are backed by a claim (KEP-5004).
//   - Ended, which comes before the final status of the pod and so before its object is removed, has the drivers
//     unprepare the claims that no other pod uses. Gone does it for a pod that the agent has not seen end.
//
// A driver is added with [Manager.Add]:
//
//	manager, err := dra.New(stateDir, claims, dra.Options{Slices: slices})
//	…
//	driver := manager.Add("ports.example.com", ports)
//	driver.SetConnected(true)
//
// If no part of a driver is connected for 30 s, its slices are removed from the API, so that the scheduler sends no
// more pods. When the agent starts, those of all drivers are removed: drivers that are there publish them again.
//
// # Guarantees
//
// A claim is written down before a driver is called to prepare it, and removed after the driver has unprepared it. So
// an agent that is killed at any moment, or a kubelet after it, finds each claim that may be prepared. After a restart
// of the agent, drivers are called again for claims of pods that start, and not for pods that run; drivers have to be
// idempotent, as the API requires.
//
// Operations on one claim never overlap: a claim is not unprepared while a second pod begins to use it. A driver that
// hangs holds up only pods with its claims. A call that fails is repeated with the back-off of the pod.
//
// Without drivers and claims there is one goroutine, Run, which waits. Work of its own, such as a removal of slices,
// has a goroutine while it runs, and each function of [Endpoint.Go] has one. Run waits for all of them.
//
// A container that is restarted needs neither the driver nor the API server.
//
// A state that is damaged is renamed to dra_manager_state.damaged, and pods that run have their claims prepared again.
// A full disk never keeps a claim from being unprepared.
package dra
