// Package kubeletkit composes the parts of a Kubernetes node agent.
//
// An agent receives pods from sources, runs them on a container runtime as their specs
// require, and reports their status. One call runs it:
//
//	rt, err := cri.Dial(ctx, "unix:///run/containerd/containerd.sock", cri.Options{})
//	…
//	err = kubeletkit.Run(ctx, kubeletkit.Options{
//		NodeName: "edge-7",
//		RootDir:  "/var/lib/edge-agent",
//		Runtime:  rt,
//		Sources:  []podconfig.Source{file.New("/etc/manifests", file.Options{})},
//	})
//
// [New] returns the [Agent] before it runs, for programs that call its methods. Each part of
// an agent is a package of its own, with an interface and a default implementation, and can be
// used alone.
//
// # Stopping
//
// When the context of [Run] or [Agent.Run] ends, the agent stops and the containers continue
// to run. The next agent on the same runtime adopts them without a restart. [Agent.Drain] ends
// the pods, each in its grace period. The agent must run meanwhile: a program calls Drain first,
// and cancels the context when it has returned.
//
// # Vocabulary
//
//   - A part is a component of the agent that has a field in [Overrides]. The [Override] in
//     the field wraps or replaces the part. A default is the part that [New] uses without one.
//   - An optional interface has methods of a part beyond its interface. [runtime.Optional]
//     finds it, also on a part that is wrapped. [Agent.Run] logs the ones that are missing.
//   - A component joins the life of pods, see package lifecycle and [Options].Join. Work of the
//     embedder that only runs and stops with the agent is added by [Agent.Add].
//
// # Guarantees
//
//   - Run blocks until its context ends, and then joins every goroutine that it started. There
//     are two exceptions. One is a read of a file that a user names, such as a manifest, on a file system
//     that does not answer. Nothing can end such a call of the kernel. Its goroutine, at most one
//     for each path, ends when the kernel answers.
//     The other is the call of a receiver of [Observe] that has not returned after 3 s.
//   - There is no option for a clock: the agent and its parts use package time. A test runs them in a bubble of
//     testing/synctest, see package agenttest.
//   - There is no global state. Many agents may run in one process, each with a root
//     directory, a pod logs directory and a runtime of its own. A second agent on the same
//     directory is refused.
//   - A pod that ran under the full name of a desired pod when the agent started, but has
//     another UID, is stopped before the desired one starts.
//   - The agent waits for a runtime that does not answer, at the start or later. Meanwhile
//     it stops and forgets nothing.
//   - With [Options].Checkpoint, the admitted pods run again after a reboot although no
//     source can be reached. When their source has delivered, its pods replace them.
//   - The runtime belongs to the agent: pods in it that are not desired are stopped and
//     removed once every source has delivered. Two agents must not share one.
package kubeletkit
