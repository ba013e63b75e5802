// Package checkpoint keeps the pods of an agent on disk, and the objects that they refer
// to. After a reboot these pods run again although no source can be reached: no API
// server, no URL, no mount.
//
// # Vocabulary
//
//   - A record is a file with one pod, or with one secret or config map that a kept pod
//     refers to.
//   - A kept pod is a pod that should have a record. [Dir.Keep] keeps a pod,
//     [Dir.Drop] drops it. [Dir.Run] updates the records.
//   - The end of a pod has a record if the agent reports ends: from [Dir.KeepEnd] to
//     [Dir.EndDelivered]. An end that is due when the agent stops is reported by the next
//     one.
//   - State is data that a component of the agent needs after a reboot, such as the services
//     of a cluster. [Dir.KeepState] keeps it, [Dir.LoadState] reads it.
//   - A record that cannot be used is set aside: it is logged and moved to the directory
//     "aside", so that an administrator can read it. The newest 100 files are kept there, and
//     up to 64 MiB.
//
// # Use
//
// An agent passes [Dir.Load] to podconfig.Options.Restore and runs [Dir.Run]. It calls
// Keep for each pod that it admits or updates, and Drop for each pod that a source removes or
// that is Succeeded or Failed in its source. When all sources have been seen, it calls
// [Dir.Prune] with the desired pods. It looks objects up in the source that [Dir.Objects]
// returns. The agent of the root package does all of this.
//
// # Guarantees
//
//   - A record is complete or it does not exist: it is written to another file, synced
//     and renamed, and the directory is synced. A checksum detects later damage.
//   - Keep and Drop do not block and do not fail. A write that fails, as on a full or
//     read-only disk, is logged once and repeated until it succeeds. Meanwhile only the newest
//     state of each pod is in memory. A record that cannot be written delays no other record.
//     A record of more than 16 MiB is not written.
//   - Damaged files, foreign files, records of a newer format and files of other users
//     never stop the agent. They are set aside. A file that cannot be read now, or not
//     without its key, stays where it is.
//   - The file system of the directory has 10 seconds for each read. If it does not answer, Load returns without
//     what it has not read.
//   - An interruption can leave two records of one full name. Then the record that was
//     written last counts.
//   - A pod that has not changed is not written again. So an agent that is restarted
//     writes nothing.
//   - With a key, secrets, config maps and state are encrypted at rest (AES-GCM), and records
//     of them that were not written with the key are not used. Pods are not encrypted: values
//     in their manifests are readable in their records, and a user with write access to the
//     directory can forge a pod.
//
// The directory and the records are readable only by the user of the agent (0700, 0600).
package checkpoint
