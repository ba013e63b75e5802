// Package fake is a container runtime in memory, for tests: of controllers, of
// parts of an agent, of whole agents, and for load without load.
//
//	rt := fake.New(fake.Options{})
//	rt.Script(fake.Target{Pod: "web"}, fake.Times(3, fake.Exits(time.Second, 1))...) // crash three times, then run
//	rt.Inject(fake.Fault{Call: "StopContainer", Times: 1, Err: runtime.ErrUnavailable})
//
// # What it is
//
// The fake is a CRI v1 server, and in front of it stands runtime/cri, the client
// that agents use with real runtimes. So what is tested is what will run; only the
// socket between the two is left out, and the messages are still encoded.
// [Runtime.Serve] puts the same fake behind a socket, for other processes and
// for crictl.
//
// # Vocabulary
//
//   - A behavior is what one instance of a container does: when it ends and with
//     which code, and how it takes it to be stopped.
//   - A script is a sequence of behaviors for the instances of a container.
//   - A fault is something that goes wrong with a call: an error, a delay, a call that
//     hangs, an answer that gets lost. Faults of events are lost or doubled ones.
//   - A target says which pods and containers one of these is about.
//
// # Guarantees
//
//   - Sandboxes, containers and images keep the contract of CRI as containerd does:
//     a start is for once, names are reserved, stopping and removing what is gone
//     succeeds, the stop signal is sent once, removing a sandbox takes its containers along.
//   - Time is that of package time and nothing else: in a bubble of testing/synctest
//     all happens in virtual time.
//   - There is no goroutine but those of calls, of the timers of a script when they
//     are due, and of Serve while it is called.
//   - IDs are short and counted up: "s1", "c2". Lists are in the order of creation.
//   - A question about one pod costs as much as the pod is big, however many there
//     are. A pod takes some kilobytes.
//
// # What it is not
//
// No process runs: output is what a [Behavior] says, and a log file exists only if
// it says something. Exec, Attach, PortForward, statistics, metrics and checkpoints
// answer Unimplemented. Mounts, security and resources are taken and reported, not
// acted on. Pods without the labels of kubelet are listed by CRI calls only.
package fake
