// Package objects holds secrets and config maps for the pods of a node that has no
// API server to ask for them.
//
// A [Store] is a Source: whoever knows of objects calls [Store.Set]
// with all of them whenever something has changed, and the agent looks them up and
// is told what is new. Package podconfig/file fills one from manifests; an
// embedder with a control plane of its own fills one with what that sends.
//
// # Guarantees
//
//   - A lookup answers from the latest Set. Before the first one nothing is known,
//     which is another thing than there being no such object: lookups wait for it,
//     a second at most, and then fail with [ErrNotSet], so that no reference is
//     taken for one to an object that is optional and missing.
//   - A watcher is told of each object that differs after a Set from what it was
//     before; while it is busy what is new is gathered, each object once.
//   - A Store starts no goroutine, never blocks in Set, and is safe for concurrent
//     use.
package objects
