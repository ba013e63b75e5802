//go:build !linux

package node

import (
	"errors"
	goruntime "runtime"

	v1 "k8s.io/api/core/v1"
)

func readFacts(string) v1.NodeSystemInfo { return v1.NodeSystemInfo{OSImage: goruntime.GOOS} }

func inUserNamespace(string) *bool { return new(false) }

func coreCount(string) int { return goruntime.NumCPU() }

func readCapacity(MachineOptions, v1.ResourceList) error {
	return errors.New("the memory of the machine is known on Linux only; give a source in Options.Resources")
}
