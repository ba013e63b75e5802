// Package objectcache has the secrets and config maps of an API server that the pods of a
// node refer to.
//
// # Vocabulary
//
//   - An object is a *v1.Secret or a *v1.ConfigMap, and an [objects.Ref] identifies it.
//   - An object is referenced while a pod of the API server is bound to the node, has not
//     ended, and refers to it, see objects.References. Static pods and mirror pods do not
//     count: an API server gives a node no permission for them.
//   - An object is read when the API server has answered: with the object, or that it does
//     not exist.
//
// # Use
//
//	cache, err := objectcache.New(client, "edge-7", objectcache.Options{})
//	observe := podsource.ObserverFunc(func(c podsource.Change) { cache.Update(c.Changed, c.Removed) })
//	opts.Objects = cache
//	err = agent.Add("object cache", cache.Run)
//
// The observer must be called before the agent receives the pods, as podsource does.
//
// # Guarantees
//
//   - A referenced object has one watch, for this object alone. It ends when no pod refers
//     to the object any more. An immutable object is read once and not watched. The objects of a pod
//     that refers to more than 1000 are not watched: agents refuse such a pod. If it does so with its
//     ephemeral containers only, what these refer to is not watched.
//   - A lookup of an object that has not been read waits for it, for a second at most, and
//     then fails with an error that is not NotFound. NotFound is an answer of the API server.
//   - While the API server cannot be reached, lookups return what was read before.
//   - A failed read is repeated after 0.5 s to 45 s. If the API server forbids it, the error
//     of the lookup has the name of the object and the permission that is missing.
//   - Watch reports each object whose data has changed, and each object that is read after a
//     lookup has failed, so that pods that wait for it are synced at once. Its first call
//     comes with the first answer of the API server. Until then a checkpoint answers, see
//     podconfig/checkpoint.
//   - Objects are without their managed fields. Nothing of their data is in logs or errors.
//
// # Differences from kubelet 1.37
//
//   - Kubelet ends the watch of an object that was not looked up for five minutes, and reads the
//     object again at the next lookup. Here the watch continues, because it also causes the
//     syncs of pods that wait.
//   - Kubelet looks objects up again with the next sync of the pod, 60 s later. Here a change
//     causes the sync.
package objectcache
