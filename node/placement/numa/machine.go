package numa

// Machine has the CPUs and the memory nodes of a machine.
type Machine struct {
	// CPUs are those that are online, in the order of their IDs.
	CPUs []CPU
	// Nodes are the memory nodes, in the order of their IDs. A machine without NUMA has one, with ID 0.
	Nodes []Node
}

// CPU is a logical CPU, which the kernel schedules threads on.
type CPU struct {
	ID int
	// Core is the physical core, and Socket the package: the lowest ID of the CPUs that share it, so that it is unique
	// on the machine.
	Core, Socket int
	// UncoreCache is the last-level cache that the CPU shares with others: the lowest ID of these CPUs.
	UncoreCache int
	// Node is the ID of the memory node.
	Node int
}

// Node is a memory node.
type Node struct {
	ID int
	// Memory is all of its memory in bytes, that in huge pages too.
	Memory uint64
	// HugePages are the numbers of its huge pages, by their size in bytes.
	HugePages map[uint64]uint64
	// Distances are the costs of an access to the memory of each node, in the order of Machine.Nodes: 10 for its own.
	Distances []int
}
