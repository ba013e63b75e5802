// Package crilog reads container logs in the format of CRI, which containerd,
// CRI-O and runtime/process write:
//
//	2026-01-02T03:04:05.000000006Z stdout F the text of a line
//
// # Vocabulary
//
//   - A line is one line of the file. Its stream is stdout or stderr; its tag says
//     whether it is a full line of the container's output (F) or a part that the
//     next line of the stream continues (P). Further tags may follow after a colon.
//   - Rotation renames the file, and the runtime goes on in a new one of the old name.
//
// # Guarantees
//
//   - Lines of another form, such as one that a crash has cut, are skipped.
//   - A [Reader] never waits: at the end of what is written it returns [io.EOF], and
//     can be asked again. It goes over to the new file after a rotation, when the old
//     one is read to its end, and to the beginning of one that was truncated.
//   - Memory is bounded by the longest line, at most 16 MiB; longer ones are skipped.
package crilog
