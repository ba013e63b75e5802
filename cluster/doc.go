// Package cluster makes an agent a node of a Kubernetes cluster. It and the packages below
// it are the only ones that talk to an API server, and the only ones that import client-go.
//
//	node, err := cluster.New(cluster.Config{NodeName: "edge-7", REST: restConfig})
//	opts := kubeletkit.Options{NodeName: "edge-7", Runtime: rt, …}
//	err = node.Configure(&opts)      // adds its source, sink, objects, events and admission
//	agent, err := kubeletkit.New(opts)
//	err = node.Join(agent)           // its components run and stop with the agent
//	err = agent.Run(ctx)
//
// # Packages
//
// Each package below has one of the jobs, and can be used alone:
//
//   - podsource delivers the pods that are bound to the node.
//   - podstatus writes the status of pods, deletes pods that have ended, and keeps the mirror
//     pods of static pods.
//   - node registers the node, reports its status and renews its lease.
//   - objectcache has the secrets and config maps that pods refer to; tokens has service
//     account tokens, podcertificates certificates of pods, trustbundles cluster trust bundles,
//     services the environment variables of services, runtimeclass the runtime classes.
//   - events records events.
//   - admission has the checks of a node: resources, affinity, taints; and preemption.
//   - credentials has client certificates: kubeconfig, bootstrap, rotation.
package cluster
