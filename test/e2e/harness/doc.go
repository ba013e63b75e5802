// Package harness runs real components for the end-to-end tests: a containerd
// with a network namespace, a root and a registry of its own, and node agents
// beside it.
//
//   - A [Cluster] is one containerd and what it needs. Nothing of it is shared
//     with the host or with another cluster, so several run side by side, and
//     closing one removes every process, mount and file of it. There are two kinds,
//     see [Containerd].
//   - An [Agent] is one agent process on a cluster: minikubelet, or a kubelet for
//     comparison. Because an agent ends all other pods in its runtime, a cluster has
//     one running agent at a time.
//   - A [KubeadmNode] is a cluster of kubeadm on one machine, whose agent may be changed.
//   - [NodeTests] are the node tests of Kubernetes, for an agent of a cluster.
//   - An [APIServer] is a kube-apiserver with an etcd. Tests compare its validation
//     with the agent's.
//   - An agent from [NewProcessAgent] has no cluster: its containers are processes
//     of the host.
//   - A [CRIProxy] stands for a runtime that has fewer calls. A [Gateway] resets the
//     connections of clients.
//   - A [Client] reads the containers through the CRI socket, without the agent, and
//     is the bare client of the benchmarks.
//
// All traffic stays on the loopback and the pod bridge of the cluster's network
// namespace.
package harness
