// Package images makes the images of containers and image volumes present on the node: it pulls each image once,
// whoever needs it.
//
//	puller, err := images.New(images.Options{
//		Credentials: credentials.Join(credentials.Secrets{}, credentials.NodeConfig("/var/lib/kubelet/config.json")),
//		MaxParallel: 3,
//	})
//	...
//	image, err := puller.Ensure(ctx, images.Request{Pod: pod, Secrets: secrets, ImageRequest: req})
//
// # Vocabulary
//
//   - A request asks for one image, with the pull policy and the credentials of one pod.
//   - A pull makes a runtime fetch an image. Requests for the same image with the same credentials share a pull.
//     Requests with other credentials wait for its end, and then need no pull if the image is present and the pod may
//     use it.
//   - A back-off is the time after a failed pull in which the same pod does not pull the same image again.
//   - The right to an image is that a pod may use an image that is present: its credentials have pulled it, or are
//     equal to those that have (KEP-2535). Package records keeps it.
//
// # Policies
//
// With the policy IfNotPresent, an image is pulled if it is not present, or if the pod may not use it. With Never it is
// not pulled; an image that the pod may not use counts as absent. With Always the registry is asked each time, by a
// pull that transfers only what is missing.
//
// If containers are processes of the machine ([runtime.ImageRequest].HostProcesses), an image is a name only: there are
// no events, records and back-off of pulls.
//
// # Guarantees
//
//   - A [Puller] starts no goroutine. A pull ends with the request that began it; if others wait for it, one of them
//     begins it again.
//   - At most [Options].MaxParallel pulls are under way, and at most [Options].QPS begin in a second. Others wait. A
//     credential that is tried after another one counts as another pull.
//   - A failed pull fails all requests that have shared it. Each pod has its own back-off.
//   - Waiting reasons, messages and events are kubelet's. None of them contains a credential.
//
// # Not possible
//
// CRI does not report how far a pull is. A pull that makes no progress is ended by the runtime:
// image_pull_progress_timeout of containerd, 5 minutes by default, pull_progress_timeout of CRI-O. A pull that the
// runtime has ended is tried again after the back-off.
package images
