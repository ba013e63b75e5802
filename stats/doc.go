// Package stats has the usage of a node and its pods: CPU, memory, swap, network, volumes, file
// systems, and the pressure stall information where the kernel has it.
//
//	collector, err := stats.New(rt, agent, stats.Options{NodeName: "edge-7", RootDir: rootDir})
//	...
//	err = agent.Add("stats", collector.Run) // for volumes and logs
//	reading, err := collector.Read(ctx)
//
// # Where the numbers come from
//
//   - Pods and containers: the runtime ([runtime.UsageReporter]; with CRI ListPodSandboxStats, or
//     ListContainerStats). If the runtime does not report them, cgroups of version 1 or 2, where
//     [Options].PodCgroup finds them.
//   - The node: /proc and the root cgroup.
//   - File systems: statfs(2), and [runtime.ImageService] for those of images and of writable
//     layers.
//   - Volumes and logs: their files, once a minute. [Collector.Run] measures them beside the
//     readings.
//   - A rate of CPU usage that the runtime does not report is that between two readings. The
//     first reading has none.
//
// # Guarantees
//
//   - Nothing is read without a request: an idle Collector costs nothing.
//   - Usage is read at most once in [Options].Period, and all readers share it. A reader that
//     gives up does not affect the others.
//   - A reader at regular intervals of up to 2 minutes, as a scraper, does not wait for the
//     runtime from its fourth request on: [Collector.Run] reads shortly before it. When the
//     requests stop, this is one reading too many.
//   - The names of pods and containers are those that the agent knows. A runtime reports usage by
//     ID, and what it reports of an ID that the agent does not know is dropped. So it cannot report
//     usage in the name of another pod.
//   - A number that cannot be true is dropped: more than 1 EiB, a share of time above 100 %. A time
//     more than 10 minutes from now is replaced by that of the reading.
//   - A runtime that does not answer within [Options].Timeout costs the readers that time once a
//     period. The usage of pods is then missing, and [Reading].Err is not nil.
//   - What is missing is nil, never 0.
//
// # Differences from kubelet
//
//   - kubelet has most numbers from cAdvisor, which reads all cgroups every 10 to 15 seconds,
//     also without a request.
//   - The pods "kubelet", "runtime" and "pods" of the system are not in the summary.
//   - A pod whose sandbox is being made, and a container that does not run, are not in the summary.
package stats
