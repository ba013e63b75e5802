//go:build !unix

package nodenet

func descriptors() uint64 { return 0 }
