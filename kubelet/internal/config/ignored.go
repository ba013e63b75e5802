package config

import "strings"

// ignored is the value of a flag that has no effect.
type ignored struct{}

func (ignored) String() string   { return "" }
func (ignored) Set(string) error { return nil }
func (ignored) Type() string     { return "ignored" }

// ignoredFlags are kubelet's flags (as of 1.37) that take a value and are not
// implemented here, ignoredSwitches those that need none.
const (
	ignoredFlags = `cpu-manager-reconcile-period experimental-mounter-path hairpin-mode
		lock-file
		log-flush-frequency log-json-info-buffer-size log-text-info-buffer-size
		volume-plugin-dir
		volume-stats-agg-period windows-priorityclass`
	ignoredSwitches = `exit-on-lock-contention
		experimental-allocatable-ignore-eviction kernel-memcg-notification
		log-json-split-stream log-text-split-stream
		windows-service`
)

// IgnoredFlags returns the flags that are accepted and have no effect.
func IgnoredFlags() []string { return strings.Fields(ignoredFlags + " " + ignoredSwitches) }
