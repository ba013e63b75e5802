// Package storage has what volumes of CSI drivers need of an API server, for package node/volume/csi, and publishes the
// drivers of the node.
//
// # Vocabulary
//
//   - A CSIDriver is an object with what a driver requests: attachment, information about the pod, tokens.
//   - A VolumeAttachment is the object by which a controller attaches a volume to a node. An attached one has the
//     metadata that the driver needs on the node, which may be secret.
//   - A volume is in use while the status of the node has it in volumesInUse, and attached while that has it in
//     volumesAttached. The agent reports the first, a controller of the cluster sets the second.
//   - The CSINode object has the drivers of the node, with what the scheduler and the controllers need of them.
//   - A driver is published when the CSINode object, an annotation and labels of the node object have it.
//
// # Use
//
//	s, err := storage.New(client, "edge-7", tokens, storage.Options{Checkpoint: store, Sync: sync})
//	n, err := node.New(client, "edge-7", node.Options{
//		ReadyChecks: []func() error{s.Ready}, VolumesInUse: plugin.VolumesInUse})
//	n.OnChange(s.NodeChanged)
//	observe := podsource.ObserverFunc(func(c podsource.Change) {
//		if c.Complete {
//			s.Retain(source.Pods())
//		} else {
//			s.Update(c.Changed, c.Removed)
//		}
//	})
//	err = agent.Add("storage", s.Run)
//
// Package cluster does this, see cluster.Config.CSI and cluster.Node.Storage.
//
// A driver registers: the plugin calls [Storage.Install]. A pod with a volume of the driver starts: the plugin reads
// [Storage.Driver], reports the volume as in use, and calls [Storage.Attached] until that returns nil. Each time the
// node object shows another state of the volume, Options.Sync is called for the pod. Then the plugin reads
// [Storage.Attachment] and [Storage.Secret], and has the driver stage the volume. When the volume is not staged any
// more, it calls [Storage.Forget].
//
// # Guarantees
//
//   - Before the first call of a method, only the CSINode object is read and written. The CSIDrivers are watched from
//     the first call of [Storage.Driver] on, which waits for the first answer, for a second at most. VolumeAttachments
//     and secrets are read one at a time, as the node authorizer requires, with each call.
//   - [Storage.Attached] makes no request.
//   - Without the API server, Driver returns what was last read, Attachment an attachment that was attached, and Secret
//     what was last read, also after a restart of the agent if there is a checkpoint. NotFound is an answer of the API
//     server. An attachment or a secret of more than 24 KiB, or one beyond 512, is not kept.
//   - A kept attachment is dropped by Forget, and when it is not attached any more. A kept secret is dropped when it
//     does not exist any more, or when the API server permits it no more: the node authorizer permits a secret while a
//     volume of a pod that is bound to the node refers to it. Both are checked a minute after a pod has gone or a
//     volume was detached, and every ten minutes at most.
//   - The CSINode object is created when the node is registered, and again when another node object replaces it. Its
//     owner is the node object. A CSINode object of another node object is deleted. Drivers in it that are not
//     registered stay: they may register again.
//   - Install and Uninstall write nothing if nothing differs. A write that conflicts with that of another client is
//     made four times at most. If the API server does not answer within six seconds, they return nil, and the change is
//     made when it answers.
//   - No secret, no metadata of an attachment and no token is in a log or an error.
//
// # Differences from kubelet 1.37
//
//   - Kubelet waits up to 10 s until it reads again whether a volume is attached, and then reads the node object from
//     the API server. Here the watch of the node object causes the next attempt.
//   - Kubelet ends if it cannot create the CSINode object within 140 s. Here the node stays not ready, and it is tried
//     again.
//   - Kubelet refuses the registration of a driver while the API server is away. Here the driver can be used, and is
//     published later.
//   - Kubelet repeats each error of a write; here only conflicts, since the registration is repeated anyway.
//   - Kubelet 1.37 has the feature gate CSIVolumeHealth, which is off: the status of the CSINode object is not written.
package storage
