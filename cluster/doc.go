// Package cluster makes an agent a node of a Kubernetes cluster. Apart from examples, only
// this package and the packages below it call an API server and import client-go.
//
//	node, err := cluster.New(cluster.Config{NodeName: "edge-7", REST: restConfig})
//	opts := kubeletkit.Options{NodeName: "edge-7", Runtime: rt, …}
//	err = node.Configure(&opts) // adds its source, sink, objects, events and components
//	err = kubeletkit.Run(ctx, opts)
//
// # Packages
//
// Each package below does a part of the work, and can be used alone:
//
//   - podsource delivers the pods that are bound to the node.
//   - podstatus writes the status of pods, deletes pods that have ended, and keeps the mirror
//     pods of static pods.
//   - node registers the node, reports its status and renews its lease.
//   - objectcache has the secrets and config maps that pods refer to.
//   - tokens has service account tokens, podcertificates certificates of pods, and
//     trustbundles cluster trust bundles.
//     [Node.ServiceAccounts] is for credential provider plugins, package images/credentials.
//   - services has the environment variables of services, and runtimeclass the runtime classes.
//   - storage has the CSIDrivers, VolumeAttachments and secrets that volumes of CSI drivers need, and publishes the
//     drivers of the node.
//   - events writes events.
//   - admission checks the resources, affinity and taints of the node, and preempts pods.
//   - credentials has the certificates of the node: kubeconfig, bootstrap, rotation, serving.
//   - reviews has the API server authenticate and authorize clients of the node.
package cluster
