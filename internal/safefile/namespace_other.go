//go:build unix && !linux

package safefile

func unknownOwner() int { return -1 }
