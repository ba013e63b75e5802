// Package crilog reads container logs in the format of CRI. containerd, CRI-O and
// runtime/process write it:
//
//	2026-01-02T03:04:05.000000006Z stdout F the text of a line
//
// # Vocabulary
//
//   - A line is one line of the file. It has a time, a stream (stdout or stderr), tags
//     and a text. The first tag is F for a full line of the container's output, and P
//     for a part that the next line of the stream continues. Tags are separated by
//     colons.
//   - Rotation renames the file. The runtime then writes to a new file with the old
//     name. Package logs rotates; the names of rotated files are kubelet's, see [FindRotated]. Older ones are
//     compressed.
//
// # Guarantees
//
//   - A line that is not in this format is skipped, for example one that was cut off
//     by a crash.
//   - A [Reader] does not wait. At the end of the file it returns [io.EOF], and can be
//     called again when there may be more. After a rotation, or several, it continues with the next
//     file, when it has read the old one to its end. After a truncation it continues at
//     the beginning.
//   - Memory is bounded by the longest line. A line that is longer than 16 MiB is
//     skipped. Each call is bounded in what it reads, whatever the size of the file.
//   - Only regular files are opened, and links are not followed. No call waits for a
//     writer.
package crilog
