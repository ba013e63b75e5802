// Package mounting runs the programs of the machine that mount file systems: mount and umount, blkid, fsck and mkfs.
// The kernel does not end a call for a server or a disk that does not answer. In a program, such a call does not keep
// the agent from ending.
package mounting
