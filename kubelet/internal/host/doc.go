// Package host compares the machine and this process with what the settings require of them, and
// sets what may be set, as kubelet does when it starts: the OOM score and the limit of open files
// of the agent, settings of the kernel, and the refusal of swap and of cgroup v1.
//
// [Read] reads the machine, [Decide] decides, and [Plan.Apply] writes. Only Apply changes anything.
package host
