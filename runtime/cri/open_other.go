//go:build !unix

package cri

// openAsIs has no equal on this system.
const openAsIs = 0
