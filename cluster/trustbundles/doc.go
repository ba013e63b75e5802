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
//   - The API is certificates.k8s.io/v1, or v1beta1 where the server does not have it. It is
//     asked for again with each list. If the server has neither, as by default in Kubernetes 1.36, pods
//     with such volumes wait, and the error says that.
//   - While the API server cannot be reached, bundles are those that were read before, with a
//     checkpoint also by an earlier run of the agent.
//   - Certificates are without headers and comments, each once. Their order says nothing: it is
//     another one in each pod, and stays the same for a pod.
//
// # Differences from kubelet 1.36
//
//   - Kubelet shuffles the certificates again every five minutes, which rewrites the files.
//   - Kubelet knows the version v1alpha1, and not v1.
//   - A change is in the files at once, and not after the next resync of the pod.
package trustbundles
