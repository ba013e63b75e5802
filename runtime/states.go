package runtime

// States keeps the state of parts and components for the next run of the agent, such as the results of probes and the
// services of a cluster. The checkpoint of an agent is one.
type States interface {
	// KeepState keeps the state under the name, in place of what was kept under it before. It does not block. The state
	// is kept as JSON, and must not be changed afterwards, unless it is a [encoding/json.Marshaler] that may be called
	// at any time. Nil removes it. The name is that of a file, such as "serial-ports"; the agent and package cluster
	// have "probes", "services", "tokens" and others.
	KeepState(name string, state any)
	// LoadState reads what an earlier agent has kept under the name into the value that the pointer refers to, and
	// reports whether there is anything that can be read. It may be called before Load of a checkpoint. It may wait for
	// a disk, so that a component calls it in its first Prepare or in Run, not in Admit.
	LoadState(name string, into any) bool
}
