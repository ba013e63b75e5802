// Package records keeps the credentials with which the images of a node were pulled, without their content, so that a
// private image is used only by pods that could pull it (KEP-2535).
//
// An image that is present can be used without a pull. If a pod of one tenant has pulled it with its secret, a pod of
// another tenant must not get it because it is there. [Records] decides whether a pod may use an image, or needs a pull
// in which the registry decides:
//
//	r, err := records.New("/var/lib/kubelet", records.Options{Policy: records.NeverVerifyPreloadedImages})
//	...
//	r.Listed(list) // with each list of images, the first as early as possible
//	...
//	decision, err := r.Decide("registry.example/app:1", imageID, credentialsOfThePod)
//	if !decision.MayUse() {
//		err = r.Intend("registry.example/app:1") // before the pull
//		...
//		err = r.Pulled("registry.example/app:1", imageID, credentialOfThePull) // or Failed, or Unknown
//	}
//
// # Vocabulary
//
//   - An intent is a file that says that an image is being pulled. It is written before the pull and removed after it.
//   - A record is a file that says that the agent has pulled an image, under which names, and which credentials may use
//     it. There is one for each image ID.
//   - An image is preloaded if it is present and has neither an intent nor a record: the agent has not pulled it.
//   - The policy says for which images credentials are verified, see [Policy].
//
// # Who may use an image
//
// If the policy requires verification, a pod may use an image whose record has, under the name that the pod uses,
// without tag and digest:
//
//   - that all pods of the node may use it, since it was pulled without a credential or with one of the node,
//   - or a secret of the pod, also if its content has changed since, or a secret with the same content as one of the
//     pod,
//   - or a service account of the pod.
//
// A secret that is found in this way is recorded, up to 100 of an image.
//
// # Guarantees
//
//   - Files, names and decisions are kubelet's: a kubelet of version 1.35 or later reads what this package writes, and
//     this package reads what kubelet writes, also the v1alpha1 files of 1.33 and 1.34. What differs is below.
//   - An image whose pull was cut off, by the end of the agent or a power loss, counts as pulled by the agent. It gets
//     a record without credentials.
//   - If in doubt, a pod needs a pull: if a file is damaged or cannot be read, or has a field or version that is not
//     known. Each damaged file is logged once, is read again when it is needed, and is replaced by the next pull of its
//     image.
//   - Decide writes nothing to decide, so a full disk prevents no pod from using an image that is present. A pull whose
//     intent cannot be written is refused.
//   - Decide reads the file of a record at its first use only. Memory is proportional to the number of files.
//   - No lock is held while a file of another image is read or written, or credentials are looked up.
//   - The record of an image goes after the image: see [Records.Listed].
//
// # Differences to kubelet
//
//   - Names of the same image are equal: an intent for "app" is one for "docker.io/library/app:latest". In kubelet the
//     other name counts as preloaded until the pull ends. While an image is pulled by tag, one of the same repository
//     that a pod names by digest counts as being pulled, too, unless a list shows it as preloaded.
//   - A pull that is cut off while the process goes on is not decided by a list that may be older.
//   - An image that a list of this process shows as preloaded stays so while it is pulled, and if that fails or is cut
//     off. In kubelet, other pods need a credential meanwhile, and after the end of the process.
//   - A pull that is cut off while the process goes on counts as one that may have brought the image. In kubelet, the
//     image then counts as preloaded.
//   - A damaged file does not matter if the policy requires no verification.
//   - A record that cannot be written is valid in memory, and is written later.
//   - Files survive a power loss. The image itself is the matter of the runtime: containerd writes its files to the
//     disk in time only with image_pull_with_sync_fs.
//   - A record has at most 1000 secrets, and service accounts, under a name.
package records
