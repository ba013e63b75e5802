// Package kubeletkit composes the parts of a Kubernetes node agent.
//
// An [Agent] takes pods from sources, runs them on a container runtime, keeps
// them as their specs say, and knows their status. Every part of it stands in a
// package of its own, with an interface and a default implementation, and can be
// used alone or replaced through [Options]:
//
//	rt, err := cri.Dial(ctx, "unix:///run/containerd/containerd.sock", cri.Options{})
//	agent, err := kubeletkit.New(kubeletkit.Options{
//		NodeName: "edge-7",
//		RootDir:  "/var/lib/edge-agent",
//		Runtime:  rt,
//		Sources:  []podconfig.Source{file.New("/etc/manifests", file.Options{})},
//	})
//	err = agent.Run(ctx)
//
// # Guarantees
//
//   - Run blocks until its context ends; then it has joined every goroutine that
//     it started. The pods go on running, and the next agent on the same
//     runtime adopts them without a restart.
//   - Nothing is global: many agents may run in one process, each with a root
//     directory, a pod logs directory and a runtime of its own. A second agent on
//     the same directory is refused.
//   - A pod that ran under the full name of a desired one when the agent started,
//     but with another UID, is stopped before the desired one starts.
//   - A runtime that is away, at the start or later, is waited for; nothing is
//     stopped or forgotten meanwhile.
//   - With [Options].Checkpoint the pods that were admitted come back after a reboot
//     though no source can be reached, until their source says otherwise.
//   - The runtime belongs to the agent: pods in it that no source wants are
//     stopped and removed once every source has been seen. Two agents must not share one.
package kubeletkit
