// Package objects provides secrets and config maps to the pods of a node that has no
// API server.
//
// # Vocabulary
//
//   - An object is a *v1.Secret or a *v1.ConfigMap. A [Ref] is its kind, namespace and
//     name.
//   - A [Source] looks objects up and reports changes. Package podconfig/file reads
//     objects from manifests. A [Store] holds them in memory, for embedders with a
//     control plane of their own and for tests.
//   - [References] returns the objects that a pod refers to. [Dependents] finds the pods
//     that refer to objects that have changed.
//
// # Use
//
// Give a Source to the agent as kubeletkit.Options.API.Objects. Permit references to its objects in
// the options of the sources of pods, see podconfig/manifest.AllowedRefs. A container
// whose secret is missing waits. It starts soon after the secret appears. Running
// containers keep the environment that they were started with.
//
// # Guarantees
//
//   - Objects that a Source returns are shared and must not be changed.
//   - A lookup in a Store returns what the latest call of [Store.Set] passed. Before the
//     first call a lookup waits for it, for a second at most, and then returns
//     [ErrNotSet]. This differs from a NotFound error: an optional reference must not
//     be skipped only because the objects have not been read yet.
//   - [Store.Watch] reports each object that a Set has changed. While its callback runs,
//     changes are merged, so a slow callback takes no memory beyond one entry for each
//     object.
//   - A Store starts no goroutine, and Set does not block.
//   - All methods are safe for concurrent use.
package objects
