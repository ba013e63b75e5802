//go:build unix

package cri

import "syscall"

// openAsIs are flags for opening a path without following a link and without blocking.
const openAsIs = syscall.O_NOFOLLOW | syscall.O_NONBLOCK
