// Package numa describes the memory nodes (NUMA nodes) of a machine and its CPUs, and which nodes a resource prefers.
// It is what the packages that place containers near their memory have in common: node/placement/topology,
// node/placement/cpus, node/placement/memory and node/devices.
//
// # Vocabulary
//
//   - A node is a part of the memory with the CPUs near to it. Its ID is that of /sys/devices/system/node. Here a node
//     is never a machine.
//   - [Nodes] is a set of nodes.
//   - A [Hint] is a set of nodes on which a container can have a resource, and whether the provider of the resource
//     prefers it.
//   - A [Machine] has all nodes and CPUs.
//
// All of it is values: functions are pure, and safe for concurrent use.
package numa
