//go:build !unix

package safefile

const nonBlock, noFollow = 0, 0
