// Package tokens has the tokens of the service accounts of pods.
//
// # Vocabulary
//
//   - A token is the answer of an API server to a TokenRequest: for a service account, bound to
//     an object, which is the pod, for audiences and a lifetime.
//   - A token is refreshed when another one replaces it, after 80 % of its lifetime or 24 hours,
//     and up to 10 s earlier, as kubelet does.
//
// # Use
//
//	t, err := tokens.New(client, tokens.Options{Checkpoint: store, Refreshed: sync})
//	observe := podsource.ObserverFunc(func(c podsource.Change) {
//		if c.Complete {
//			t.Retain(source.Pods())
//		} else {
//			t.Update(c.Changed, c.Removed)
//		}
//	})
//	sources := volume.Sources{Tokens: t}
//	err = agent.Add("service account tokens", t.Run)
//
// # Guarantees
//
//   - [Tokens.Token] requests a token if there is none for this request yet. Otherwise it
//     returns the present token without waiting.
//   - [Tokens.Run] refreshes tokens when they are due, and calls Options.Refreshed, so that the
//     volume of the pod gets the new one. A refresh that fails is repeated after 1 s to 1 min.
//   - The age of a token is measured from its arrival by the clock of the node. So a difference to the
//     clock of the API server neither shortens nor extends its use.
//   - An expired token is returned only if the API server cannot be reached. Servers refuse
//     it, but its pod can start, and gets a valid token when the API server answers again.
//   - The tokens of a pod are forgotten when the pod has ended or is gone, also if it was removed
//     while no agent ran or while a token was requested for it. They are forgotten as well when
//     the API server answers that the pod or its service account does not exist.
//   - With a checkpoint, tokens are kept for the next run of the agent. Like secrets they are
//     readable by the user of the agent only, and encrypted if the checkpoint has a key.
//   - No token is in a log or an error.
//
// # Differences from kubelet 1.37
//
//   - Kubelet checks whether a token is due when it syncs the pod. Here a token is refreshed
//     when it is due, and no sync waits for that.
//   - After a restart kubelet requests all tokens again.
//   - Kubelet fails with an expired token, also while the API server cannot be reached.
package tokens
