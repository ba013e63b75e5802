//go:build unix && !linux

package safedir

func unknownOwner() int { return -1 }
