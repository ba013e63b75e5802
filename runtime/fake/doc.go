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
//     hangs, an answer that gets lost. What goes wrong with events is a fault too: they
//     are lost, doubled, late, overtaken, without what they should tell.
//   - A target says which pods and containers one of these is about.
//
// # Guarantees
//
//   - Sandboxes, containers and images keep the contract of CRI as containerd does:
//     a start is for once, names are reserved, stopping and removing what is gone
//     succeeds, the stop signal is sent once, removing a sandbox takes its containers along.
//   - The stream of events is as good or as bad as [EventStream] says, that of containerd
//     included, and a runtime that is too old for some calls is one [Options].Without them.
//   - Time is that of package time and nothing else: in a bubble of testing/synctest
//     all happens in virtual time, but for Serve and ServeStreams, which are for sockets.
//   - There is no goroutine but those of calls, of timers and contexts when they are
//     due, and of Serve and ServeStreams while they are called.
//   - IDs are short and counted up: "s1", "c2". Lists are in the order of creation.
//
// # Load
//
// [Runtime.Seed] has thousands of pods run in a moment, [Runtime.ExitNext] and
// [Runtime.RestartNext] change many at once, always the same ones, and a [Fault] with a
// delay and no more is a runtime that takes its time. A question about one pod costs
// as much as the pod is big, however many there are; a list of all, of which each entry
// is encoded once and kept until something of it changes, costs the fake less than its
// client (BenchmarkServer). A pod takes some kilobytes. For long runs turn the
// record of calls off with [Options].Calls.
//
// # What it is not
//
// No process runs: output is what a [Behavior] says, and a log file exists only if
// it says something; statistics and metrics tell what it says is used. Exec, Attach and
// PortForward lead to a [Behavior] while [Runtime.ServeStreams] serves them, and answer
// Unimplemented else; CheckpointContainer, CheckpointPod, RestorePod and
// UpdatePodSandboxResources always do. Mounts, security and resources are taken and
// reported, not acted on. Pods without the labels of kubelet are listed by CRI calls only.
package fake
