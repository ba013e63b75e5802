// Package logind connects to systemd-logind over D-Bus, for package node/shutdown.
//
//	manager, err := shutdown.New(periods, logind.New(logind.Options{}), endPods, shutdown.Options{})
//
// # Signals
//
// The shutdown of a machine is the signal PrepareForShutdown of logind. A local user may send a signal with that
// name, too, and kubelet accepts it. Here a signal counts only if logind has sent it. A test that sends signals needs
// a bus of its own, on which it has the name of logind.
//
// # Locks
//
// A lock is a file descriptor that logind has made; logind keeps it when it is restarted. The descriptor is
// closed in processes that this one starts.
package logind
