// Package fake is a container runtime in memory, for tests of controllers, of parts
// of an agent and of whole agents, and for load tests without containers.
//
//	rt := fake.New(fake.Options{})
//	rt.Script(fake.Target{Pod: "web"}, fake.Times(3, fake.Exits(time.Second, 1))...) // crash three times, then run
//	rt.Inject(fake.Fault{Call: "StopContainer", Times: 1, Err: runtime.ErrUnavailable})
//
// # What it is
//
// The fake implements the CRI v1 services. Its client is runtime/cri, as for real runtimes, so
// that a test runs the code that runs in production. Only the socket between the two is left
// out; messages are still encoded and decoded. Package criserver serves the same fake on a
// socket, for other processes and for crictl.
//
// # Vocabulary
//
//   - A behavior defines when a container instance ends, with which exit code, and how
//     it reacts to the stop signal.
//   - A script is a sequence of behaviors for the successive instances of a container.
//   - A fault makes a call fail, wait, hang or lose its answer. An event fault loses,
//     repeats, delays or reorders events, or strips them of their statuses.
//   - A target selects the pods and containers for a script or a fault.
//
// # Guarantees
//
//   - Sandboxes, containers and images follow the contract of CRI as containerd does:
//     a container starts once, names are reserved, stopping and removing what does not
//     exist succeeds, the stop signal is sent once, and removing a sandbox removes its
//     containers.
//   - [EventStream] chooses how reliable the stream of events is; [Containerd] returns
//     the stream of containerd. [Options].Without removes calls, as in an older runtime.
//   - Time is that of package time alone, so that a bubble of testing/synctest runs all
//     of it in virtual time.
//   - The only goroutines are those of calls, timers and contexts.
//   - IDs are short and count up: "s1", "c2". Lists are in the order of creation.
//
// # Load
//
// [Runtime.Seed] makes thousands of pods run at once. [Runtime.ExitNext] and
// [Runtime.RestartNext] change many at once, in a fixed order. A [Fault] with only a
// delay makes the runtime slow. The cost of a call about one pod is proportional
// to the size of that pod. A list of all pods costs the fake less than its client,
// because each entry is encoded once and kept until it changes (BenchmarkServer). A
// pod takes some kilobytes. For long runs turn off the record of calls with
// [Options].Calls.
//
// # Virtual time
//
// The clock of a bubble stands still while one of its goroutines waits for something
// outside, such as a socket or a file descriptor. So a test in a bubble uses
// podconfig.NewStatic in place of podconfig/file and podconfig/http, and calls HTTP
// handlers without a listener. docs/embed/test.md has an example.
//
// Nothing listens on the addresses of pods. Probes and hooks of the types httpGet,
// tcpSocket and grpc connect to them on the network of the machine. [Options].PodIPs
// returns other addresses, and prober/fake has results without probes.
//
// # Limits
//
// No process runs. The output of a container comes from its [Behavior], and a log
// file exists only if there is some; statistics and metrics report the usage that
// the behavior states. Exec, Attach and PortForward need a server of streams, such
// as that of package criserver, and answer Unimplemented without one;
// CheckpointContainer, CheckpointPod and RestorePod always do. Mounts, security settings, devices and resources are
// accepted and reported, as by [Instance].CPUSet, and have no effect. Pods without kubelet's labels appear only in CRI
// calls.
package fake
