//go:build unix

package nodenet

import "syscall"

// descriptors returns the maximum number of files that this process may have open; 0 if unknown.
func descriptors() uint64 {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return 0
	}
	return uint64(limit.Cur) //nolint:unconvert // it is signed on FreeBSD
}
