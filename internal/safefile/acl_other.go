//go:build unix && !linux

package safefile

func checkACL(string, process) error { return nil }
