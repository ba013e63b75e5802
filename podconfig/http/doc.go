// Package http is the source of pods that a URL serves, as kubelet's staticPodURL.
//
// What is served is what a manifest file may hold: a v1 Pod or PodList in JSON or
// YAML, or several YAML documents, see
// [github.com/kubeletkit/kubeletkit/podconfig/manifest.Decode]. A PodList without items says
// that no pods are wanted.
//
// # Guarantees
//
//   - Whatever goes wrong, the pods that were read last stay: the server cannot be
//     reached or is too slow, it answers with another status than 200 or 304, or
//     with something that is empty, too large, no manifest, or a manifest of which
//     one pod is not valid. This goes for the life of the [Source]; one that has
//     not yet read anything counts as unseen.
//   - An answer that did not change is not parsed again, and where the server gives
//     an ETag or Last-Modified, not sent again.
//   - After a failed request the next one follows sooner: after 1 s, 2 s, 4 s and so
//     on, up to the usual period.
//   - A failure that lasts is logged with decreasing frequency: the 1st, 2nd, 4th and
//     so on up to the 64th, and then each 64th; the others at verbosity 4.
//   - The headers that are given go to the host of the URL alone, and so does a
//     Referer. Redirects are followed ten times at most, and never from https to
//     http.
package http
