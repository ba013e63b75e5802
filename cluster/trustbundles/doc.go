// Package trustbundles has the cluster trust bundles of a cluster: certificates of authorities,
// for projected volumes.
//
// # Use
//
//	b, err := trustbundles.New(client, trustbundles.Options{Checkpoint: store, Changed: syncPodsThatUseThem})
//	opts.TrustBundles = b
//	err = agent.Add("cluster trust bundles", b.Run)
//
// # Guarantees
//
//   - Nothing is requested before the first pod needs a bundle.
//   - The API is certificates.k8s.io/v1, or v1beta1 if the server does not have v1. The version
//     is found again with each list. If the server has neither, as by default in Kubernetes 1.36,
//     pods with such volumes wait, and the error has this reason.
//   - While the API server cannot be reached, the bundles are those that were read before; with a
//     checkpoint, also those that an earlier run of the agent has read.
//   - Certificates have no headers and comments, and each one is there once. Their order has no
//     meaning: it differs between pods, and stays the same for a pod.
//
// # Differences from kubelet 1.37
//
//   - Kubelet shuffles the certificates again every five minutes, which rewrites the files.
//   - Kubelet also supports the version v1alpha1. It supports v1 since 1.37.
//   - A change is in the files at once, and not after the next resync of the pod.
package trustbundles
