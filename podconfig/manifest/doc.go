// Package manifest reads pods from manifests, which are text in JSON or YAML. It returns the
// pods as an API server would return them: defaulted and valid.
//
// # Vocabulary
//
//   - A manifest is JSON or YAML text. It holds a v1 Pod, a PodList, a List of pods, or
//     any number of these as YAML documents. [Options.Kinds] permits secrets and config
//     maps too.
//   - An [Item] is one pod, secret or config map of a manifest.
//   - A static pod is a pod that comes from any source other than an API server. Its
//     name ends in the name of its node.
//
// # Use
//
// A source calls [Load] with the bytes that it has read. Load has three steps, which are also
// exported:
//
//   - [Decode] parses the text. It is strict: unknown and duplicated fields are errors. With
//     [Options.Warn] it reads what kubelet reads, for an agent in the place of a kubelet.
//   - [Normalize] makes a pod a static pod of one node. It sets the UID, the name and
//     the namespace, and calls [SetDefaults].
//   - [Validate] checks a pod as the API server checks one that is created.
//
// [LoadAll] also returns secrets and config maps, after [NormalizeObject] and
// [ValidateObject].
//
// # Guarantees
//
//   - All items of a manifest are returned, or none. With [Options.Warn] these are the items of its first document.
//   - No text is dropped in silence, except by other rules of YAML such as comments.
//   - An error names the field as kubectl does, and the document if there are several.
//     A pod that was decoded and is not valid has an [InvalidError], with all problems.
//   - Errors are bounded in length, and no error repeats a value of a secret.
//   - Memory is bounded by [MaxSize], also if a few YAML aliases stand for much text.
//   - A derived UID depends only on the pod, the node, the origin and [Options].KubeletVersion. It is that of a
//     kubelet, unless the manifest has a time. [Options].UID may decide another one.
//
// The functions keep no state and are safe for concurrent use.
package manifest
