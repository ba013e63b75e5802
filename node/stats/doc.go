// Package stats has the usage of a node and its pods: CPU, memory, swap, network, volumes, file
// systems, and the pressure stall information where the kernel has it.
//
//	collector, err := stats.New(rt, stats.Options{RootDir: rootDir})
//	opts.Join = append(opts.Join, collector) // of the agent
//	...
//	reading, err := collector.Read(ctx)
//
// # Where the numbers come from
//
//   - Pods and containers: the runtime ([runtime.UsageReporter]; with CRI ListPodSandboxStats, or
//     ListContainerStats). If the runtime does not report them, the cgroups of version 1 or 2 that
//     [Options].PodCgroup returns.
//   - The node: /proc and the root cgroup. The system containers "kubelet", "runtime", "misc" and "pods": the cgroups
//     of [Options].NodeCgroups.
//   - File systems: statfs(2), and [runtime.ImageService] for those of images and of writable
//     layers.
//   - Volumes and logs: their files, once a minute. [Collector.Run] measures them beside the
//     readings.
//   - If the runtime does not report a rate of CPU usage, it is the rate between two readings.
//     The first reading has none.
//
// # Guarantees
//
//   - Nothing is read without requests: an idle Collector costs nothing.
//   - Usage is read at most once in [Options].Period, and all readers share it. A reader that
//     gives up does not affect the others.
//   - A client that reads at regular intervals of up to 2 minutes, such as a scraper, does not
//     wait for the runtime from its fourth request on: [Collector.Run] reads shortly before each
//     request. When the requests stop, there is one more reading.
//   - The names of pods and containers are those of the agent's pods. A runtime reports usage by
//     ID, and usage of an ID that does not belong to a pod of the agent is dropped. So a runtime
//     cannot report usage under the name of another pod.
//   - An impossible number is dropped: more than 1 EiB, a share of time above 100 %. A time more
//     than 10 minutes from now is replaced by that of the reading.
//   - A runtime that does not answer within 10 seconds costs the readers that time once a
//     period. The usage of pods is then missing, and [Reading].Err is not nil.
//   - A missing value is nil, never 0.
//
// # Differences from kubelet
//
//   - kubelet gets most numbers from cAdvisor, which reads all cgroups every 10 to 15 seconds,
//     also without a request.
//   - A pod whose sandbox is being made, and a container that does not run, are not in the summary.
package stats
