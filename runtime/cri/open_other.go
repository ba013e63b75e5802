//go:build !unix

package cri

// openAsIs has no equivalent on this system.
const openAsIs = 0
