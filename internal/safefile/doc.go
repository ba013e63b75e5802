// Package safefile works with files and directories that other programs can change, such as those that
// containers write to: it opens regular files only ([Open], [ReadFile]), makes directories whose content
// can be trusted ([MakeDir]), replaces files in one step ([Write]), locks files ([Lock]), and measures files and file
// systems ([FilesIn], [DiskSize]).
//
// A file is opened only if it is a regular file. Opening it does not wait for the other
// end of a pipe, and has no effect on a device.
//
// What a user names, such as a manifest or a certificate, is read by a [Reader], whose calls have a time limit: a read
// of a regular file can wait for ever, too. What the agent has written itself, and files of the kernel at fixed paths,
// are read without one.
package safefile
