//go:build !unix

package regular

const nonBlock, noFollow = 0, 0
