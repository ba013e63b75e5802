// Package config reads the command line and the configuration file of minikubelet.
// Both are kubelet's: [Parse] accepts all flags of kubelet and a KubeletConfiguration, and
// warns of those that have no effect here.
package config
