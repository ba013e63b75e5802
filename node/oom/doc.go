// Package oom watches the processes that the kernel kills for lack of memory.
//
// The kernel writes each such kill to its log, /dev/kmsg, with the name and the PID of the process and, in most
// cases, its cgroup. A [Watcher] reads the log while the agent runs, and finds the container that the process belonged
// to:
//
//   - If the machine is out of memory, the node gets kubelet's event SystemOOM.
//   - If the process belonged to a container, the pod gets the event OOMKilling and a record in its history. Both name
//     the container, the process and the limit that was reached.
//   - If the container ends because of it and the runtime does not say so, the reason of its end is OOMKilled. Runtimes
//     miss kills, for example of a process that is not the first one of its container, or if the container ends at
//     once.
//
// # Vocabulary
//
// A kill is a process that was killed: a [Kill]. A record is an entry of the log, as one read of /dev/kmsg
// returns it. A count is the number of kills in one cgroup. The victim is the killed process. A kill is global if the
// machine was out of memory, and otherwise the limit of a cgroup was reached.
//
// # Embedding
//
// A Watcher joins the lives of pods, and wraps the inspections of the agent's cache:
//
//	watcher, err := oom.New(oom.Options{})
//	agent, err := kubeletkit.New(kubeletkit.Options{Join: []lifecycle.Component{watcher}})
//
// A cache that replaces the agent's reads by Parts.Inspector. Without it, events and records are reported, and reasons
// are those of the runtime.
//
// # Guarantees
//
//   - OOMKilled is never claimed without a kill in the cgroup of that instance of the container, which ended with
//     another exit code than 0 within [KillWindow] after it.
//   - An inspection that shows such an end reads what the kernel has logged first, so the reason does not depend on
//     which of the two is faster.
//   - Records that were logged before the watcher started are skipped. An agent that is restarted reports no kill
//     twice; the reasons of containers that ended before are again those of the runtime.
//   - If the log cannot be opened, as in most containers, that is logged once. With [Options.PodCgroup] the watcher
//     then watches the kernel's counts in the cgroups of containers: memory.events, or memory.oom_control of cgroup v1.
//     Kills in containers are found, without the names of processes; a SystemOOM is not, and with cgroup v1 neither is
//     a kill by the machine in a container that goes on. The kernel reports changes; nothing is read before.
//   - Records of processes, which privileged containers can write, are ignored. A record of any size and content is
//     survived.
//   - A container has at most 5 events at once and one more each minute; the next one has the number of those left out.
//     The same holds for the node.
//   - What the watcher keeps is bounded. An idle pod costs nothing.
package oom
