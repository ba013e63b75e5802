// Package fake builds machines, with which a policy or a manager of CPUs, memory or devices is tested without that
// machine.
//
//	machine := fake.Machine{Nodes: 2, Cores: 8, Threads: 2, Memory: 64 << 30}
//	manager, err := cpus.New(machine.Numa(), path, rt, cpus.Options{ReservedCount: 1})
//	read, err := numa.Read(machine.FS()) // is equal to machine.Numa()
//
// All of it is values, and safe for concurrent use.
package fake
