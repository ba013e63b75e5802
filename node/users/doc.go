// Package users gives each pod with hostUsers: false users of its own (KEP-127).
//
// Such a pod has a user namespace: root in its containers is an ordinary user of the host, and no user of another pod.
// The package assigns each of these pods a range of host IDs, for users and for groups alike:
//
//	pod A    0…65535 in containers    131072…196607 on the host
//	pod B    0…65535 in containers    196608…262143 on the host
//
// # Vocabulary
//
//   - A range is a number of consecutive IDs of the host.
//   - The pool is the range from which pods have theirs, see [Options].Pool.
//   - A record is the file "userns" in the directory of a pod, in the format of kubelet.
//
// # Walk through
//
// [Manager] joins the life of pods:
//
//   - Admit refuses a pod that the API does not allow or the runtime cannot run.
//   - Prepare assigns a range to the pod, and writes its record.
//   - EditSandbox and EditContainer hand the runtime the range.
//   - Ended and Gone remove the record, and return the range to the pool.
//
// Files in volumes keep the IDs that containers see: the runtime mounts volumes with the range (idmapped mounts), so
// nothing is changed in volumes.
//
//	manager, err := users.New(podsDir, users.Options{Pool: users.KubeletIDs, Features: rt.Features, Logger: log})
//	…
//	agent, err := kubeletkit.New(kubeletkit.Options{Join: []lifecycle.Component{manager}, …})
//
// # Guarantees
//
// The ranges of two pods never overlap, also after restarts of the agent, with a kubelet before or after it, and if
// records are lost or damaged. Before the first range is assigned, the Manager reads the records of all pods, and the
// ranges of all processes of the machine that have a user namespace: a range in use is not assigned, whoever uses it.
//
// A pod that runs keeps its range. The sandbox decides if it differs from the record or the record is missing or
// damaged, and the record is written again. A record that is damaged while the pod runs, in a runtime that does not
// report user namespaces, is an error of that pod.
//
// No range has IDs below 65536: these are users of the host.
//
// A pod that shares the users of the host costs a comparison in each step. Nothing is read before the first pod that
// does not.
package users
