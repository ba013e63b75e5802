// Package http reads pods from a URL, as kubelet's staticPodURL.
//
// # Vocabulary
//
//   - An answer is a response that is complete and has status 200 or 304. Its body is
//     what a manifest file may hold: a v1 Pod or PodList in JSON or YAML, or several YAML
//     documents, see [github.com/kubeletkit/kubeletkit/podconfig/manifest.Decode]. A
//     PodList without items means that the source has no pods.
//   - A failure is a request without an answer, or an answer that is not a valid
//     manifest.
//
// # Guarantees
//
//   - After a failure the pods that were read last stay. Examples are an unreachable or
//     slow server, another status, an empty or too large body, and a manifest with one
//     invalid pod. A [Source] that has not read pods yet delivers nothing.
//   - An answer that has not changed is not parsed again. If the server sends an ETag or
//     Last-Modified, it is not transferred again either.
//   - After a request without an answer, the next request follows after 1 s, 2 s, 4 s and
//     so on, up to the usual period.
//   - Repeated failures are logged with decreasing frequency: the 1st, 2nd, 4th and so
//     on up to the 64th, and then each 64th. The others are logged at verbosity 4.
//   - The headers of [Options] are sent only to the host of the URL, and so is a Referer.
//     At most ten redirects are followed, and none from https to http.
//   - Messages contain the URL without its password.
package http
