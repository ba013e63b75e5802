// Package podcertificates has the certificates of pods for projected volumes (KEP-4317). It makes
// keys, requests certificates for them from the API server, and refreshes them.
//
// # Use
//
//	c, err := podcertificates.New(client, nodeName, podcertificates.Options{NodeUID: uid, Pod: source.ByUID, Changed: syncPod})
//	opts.PodCertificates = c
//	err = agent.Add("pod certificates", c.Run)
//
// A signer, which is a controller in the cluster, answers the requests.
//
// # Guarantees
//
//   - Nothing is requested or watched before the first pod has such a volume. Then one watch
//     delivers the requests of this node.
//   - Each source of a volume has a key of its own, and a new one with each request. A request
//     names the pod, its service account and the node, and is signed with the key. The private
//     key is in memory and in the volume of the pod, nowhere else: in no log, event or error.
//   - A request that may have been sent is repeated with the same name and key, so that a lost
//     answer does not cause a second request.
//   - What fails is repeated after 100 ms to 1.5 min, and with package cluster when an outage of the
//     API server ends. A request that was deleted without an answer, or does not appear within 10
//     minutes, is replaced by a new one.
//   - A certificate is refreshed at the time that the signer has set, plus a random delay of up
//     to 5 minutes, but at most half of the time that is left until the certificate expires.
//     Until a refresh has succeeded, the pod has the old certificate.
//   - A request that was denied or has failed is not repeated while the agent runs.
//   - Everything about a pod is forgotten when it has ended or is gone.
//   - The API is certificates.k8s.io/v1, or v1beta1 where the server does not have it. If it has
//     neither, as by default in Kubernetes 1.36, the pod waits, and the error has this reason.
//     A server of 1.35 gets the public key and a proof of possession in place of a signed request.
//
// # Differences from kubelet 1.37
//
//   - An error of the API server is in the event of the pod; kubelet only logs it.
//   - The volume waits for a second for the certificate before its first set-up fails.
//   - Refreshes come when they are due; kubelet looks once or twice a minute.
//   - A deleted request is noticed at once; kubelet waits for 10 to 15 minutes.
//   - The reason of the event of a denied request is "Denied" too, but the message is complete.
package podcertificates
