// Package checkpoint keeps on disk the pods that an agent has taken on, and what
// they refer to, so that they run again after a reboot though nobody who wants them
// can be reached: no API server, no URL, no mount.
//
// # Vocabulary
//
//   - A record is the file of one pod, or of one secret or config map that kept
//     pods refer to.
//   - To keep a pod is to want a record of it, to drop it is to want none. The
//     [Store] sees to it soon after, and for as long as it takes.
//   - A record that is unfit for use is set aside: moved out of the way, into the
//     directory "aside", and told of. It is not deleted, as somebody may want to look.
//
// # Use
//
// Give [Store.Load] to [github.com/kubeletkit/kubeletkit/podconfig.Options] as
// Restore, run [Store.Run], call Keep for each pod that was admitted and Drop for
// each that its source wants no more; once all sources have been heard, call Prune
// with what is desired, for what has gone unseen. [github.com/kubeletkit/kubeletkit.Agent] does
// all of that.
//
// # Guarantees
//
//   - A record is complete or not there: it is written beside its place, synced, and
//     renamed; the directory is synced after. A checksum tells what a disk has made
//     of it since.
//   - Keep and Drop never block and never fail. A write that fails, on a full disk
//     or a read-only one, is told once and tried again until it succeeds; only the
//     newest state of each pod waits meanwhile.
//   - A torn, truncated or foreign file, one of a newer version of the format, and
//     one that belongs to somebody else never stop the agent: they are set aside.
//     What cannot be read at the moment, or not without its key, is left alone.
//   - Of two records of one full name, as an interruption may leave them, the one that
//     was written last counts.
//   - What did not change is not written again, so an agent that is started again
//     writes nothing.
//   - With a key, secrets and config maps are encrypted at rest (AES-GCM). Pods are
//     not; what a manifest says openly stands openly in its record.
//
// The directory and the records belong to the user of the agent alone (0700, 0600).
package checkpoint
