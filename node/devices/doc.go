// Package devices gives containers the devices that they request as extended resources.
//
// A container requests devices in its limits, such as "example.com/modbus: 1". The devices are those of a provider: a
// part of the program, for a serial port, a licence or a slot of the node itself, or a device plugin of a vendor, see
// package node/devices/plugin.
//
// # Vocabulary
//
//   - A [Provider] has the devices of one resource, and makes them ready for containers.
//   - A [Device] has an ID that is unique among those of its resource. It is healthy or not.
//   - A [Manager] decides which container gets which devices, and keeps that in a file in kubelet's format, the
//     checkpoint.
//
// # Walk through
//
// The devices of the node itself are a few lines, which link no gRPC:
//
//	ports := devices.Fixed("example.com/modbus", map[string]runtime.ContainerEdits{
//		"line-1": {Devices: []runtime.Device{{HostPath: "/dev/ttyUSB0", ContainerPath: "/dev/modbus", Permissions: "rw"}}},
//	})
//	manager, err := devices.New("/var/lib/agent/device-plugins/"+devices.CheckpointName, devices.Options{Providers: []devices.Provider{ports}})
//	…
//	agent, err := kubeletkit.New(kubeletkit.Options{Join: []lifecycle.Component{manager}, …})
//
// The [Manager] joins the life of pods:
//
//   - Admit decides which devices the containers get. It calls no provider, so that one that hangs holds up no other
//     pod. A pod that requests more than there are is refused, or waits with [Options].WaitForDevices. With a component
//     that places containers by memory nodes, [Manager.Hints] and [Manager.Allocate] do this.
//   - Prepare asks the provider for better devices among those that are free, has it make the devices ready, and writes
//     the checkpoint.
//   - EditContainer has the provider prepare the start, and returns what the container is created with.
//   - EditStatus adds the health of the devices to the status of the pod (KEP-4680).
//   - Ended and Gone release the devices, and Refused those of a pod that another component has refused.
//
// [Manager.NodeResources] has the numbers of devices for the status of a node, and [Manager.Devices] those of a pod.
//
// # Guarantees
//
// A device is never given to two pods. Containers of a pod share devices as with kubelet: those of an init container
// are given to the next containers, those of a sidecar are not.
//
// A pod keeps its devices until it has ended: when containers are restarted, the agent is restarted, its provider ends,
// or a device becomes unhealthy. What the provider has answered is kept in the checkpoint, too. A kubelet can take the
// file over, and the agent that of a kubelet.
//
// A device that becomes unhealthy or is gone after the admission of a pod, and before its container is made ready, is
// exchanged for a free one, near to the same nodes if that is possible: the policies restricted and single-numa-node do
// not hold for it. If too few are free, the pod waits until the devices change or another pod releases some. It waits
// also for a device that an init container was made ready with and a later container uses again, since that one is not
// exchanged.
//
// Of several providers of a resource, the one that came last, of those that have delivered their devices, is used. When
// it ends, the one before it is used again, as with kubelet since 1.37.
//
// A pod whose provider is missing waits: after a reboot, or if the provider was there before and ends. Its containers
// have the reason WaitingForDevices and a message, and there is an event. kubelet fails such a pod with
// UnexpectedAdmissionError, and so does [Options].FailWithoutProvider. With [Options].WaitForDevices a pod waits also
// if there are too few devices, such as one that is not plugged in yet. A pod that requests a resource of which there
// was never a provider runs without devices, as with kubelet. If a provider comes later, its containers get devices
// when they are started again, and wait if there are too few.
//
// Devices that are chosen after the admission, because the provider was missing, are near to the nodes of the other
// resources if that is possible. The policies restricted and single-numa-node of the topology manager do not hold for
// them; with FailWithoutProvider such a pod is refused.
//
// A provider that hangs, fails or panics holds only the pods that wait for its answer. Unknown IDs that it prefers are
// ignored. An answer of more than 256 KiB fails its pod.
//
// While the checkpoint cannot be read, because of the disk, pods that request extended resources wait. If its checksum
// is wrong, pods keep their devices, and providers are asked again before containers start. If it cannot be decoded, it
// is kept aside, and the agent starts without it. A container that runs is never given devices. What a pod of an
// earlier agent holds is given back when the pod is gone: [lifecycle.Node].Gone is true, or there is no directory of it
// in "pods" below the root directory, which the agent makes before anything of the pod runs.
//
// A pod that requests no extended resource costs a look at its limits in each step. Run has one goroutine that waits,
// and one for each provider.
package devices
