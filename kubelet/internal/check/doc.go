// Package check finds what changes on a node when its kubelet is replaced by this agent, or when the
// agent is started with other settings: which settings act, which state is taken over, and which pods run on.
//
// It decides only: settings, facts of the machine, files and pods go in, and a [Report] comes out. The
// settings are those of package config and the machine is that of package host, which the agent itself
// uses, so that the check and the agent agree.
package check
