// Package logs rotates the logs of running containers, so that no container fills the disk with its output.
//
// The runtime writes the output of a container to a file, such as 0.log. When the file reaches [Options.MaxSize], a
// [Manager] renames it and has the runtime open a new one. It then compresses the files of earlier rotations, and
// removes the oldest: a container has at most [Options.MaxFiles] files. Names, order and settings are those of kubelet:
//
//	0.log                      the runtime writes to it
//	0.log.20060102-150405      of the last rotation: a log shipper may still read it
//	0.log.20060101-020304.gz   of earlier ones
//
// A second rotation within one second has a number: 0.log.20060102-150405_001.
//
// # Vocabulary
//
// The log is the file that the runtime writes to. A rotated file was the log before. A log is active while it grows,
// and quiet otherwise.
//
// # How growth is noticed
//
// kubelet reads the sizes of all logs every 10 s, in which a container can write gigabytes. A manager does nothing
// for quiet logs: the kernel reports the first write to one (inotify; see module fsnotify for other systems). The size
// of an active log is then read again and again, the sooner the closer it is to the limit, until the log is quiet. What
// a log exceeds its limit by is what the container writes in about 2 ms and while the runtime opens the new file: with
// containerd 2 to 12 ms in all as a rule, and 42 ms at most of 90 rotations on a busy machine.
// docs/operate/differences/server.md says what that means in bytes. A runtime that writes the logs itself can hold the
// limit itself, such as runtime/process: see [Options].RuntimeRotates. If the kernel cannot watch a log, its size is
// read once in [Options.Interval]. If the limits of inotify are reached, this is logged once for all logs.
//
// # Embedding
//
// A Manager joins the lives of pods:
//
//	manager, err := logs.New(rt, logs.Options{Dir: "/var/log/pods"})
//	...
//	agent, err := kubeletkit.New(kubeletkit.Options{Runtime: rt, Join: []lifecycle.Component{manager}})
//
// The runtime is a [runtime.LogReopener]; runtime/cri has one.
//
// # Guarantees
//
//   - No line is lost and none is doubled, also if the agent is killed at any moment: a file is removed only as the
//     oldest one, or when its compressed copy is on the disk. After a restart, the agent completes what was
//     interrupted.
//   - A power cut loses the lines that the kernel has not written to the disk yet. A compressed file is complete, also
//     then.
//   - If the runtime does not open a new file, the log gets its name back, unless the runtime has made a file of the
//     name meanwhile.
//   - A full disk stops no rotation: it needs no space for content. Files that cannot be compressed stay as they are,
//     and are removed in their turn.
//   - The order of rotated files is that of their names, also if the clock is set back.
//   - Files with other names are neither counted nor removed. A log that is not a regular file below [Options.Dir] is
//     left alone, which is logged once. No link leads out of Options.Dir.
//   - Logs of containers that do not run are not rotated. It is no error that a container ends while its log is
//     rotated.
//   - Each rotation, and the first of rotations that fail one after the other, is in the history of the pod
//     ([runtime.KindRotateLog]) and in measurements.
//   - A fault of one log delays no other.
package logs
