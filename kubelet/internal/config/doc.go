// Package config reads the command line and the configuration file of minikubelet.
// Both are kubelet's: [Parse] accepts a KubeletConfiguration and all flags of kubelet except
// those of cAdvisor. It returns a warning for each one that has no effect here.
package config
