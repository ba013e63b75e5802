package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/cm/containermap"
	cpus "k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/state"
	memory "k8s.io/kubernetes/pkg/kubelet/cm/memorymanager/state"
)

// checkpoints restores the states of kubelet's CPU and memory managers in DIR, has kubelet write them anew, and prints
// their contents by the names of the files. It fails if kubelet cannot restore one:
//
//	reference checkpoints DIR [FEATURE_GATES]
func checkpoints(args []string) (any, error) {
	if len(args) == 0 || len(args) > 2 {
		return nil, fmt.Errorf("usage: reference checkpoints DIR [FEATURE_GATES]")
	}
	dir := args[0]
	if len(args) == 2 {
		if err := utilfeature.DefaultMutableFeatureGate.Set(args[1]); err != nil {
			return nil, err
		}
	}
	rewrite := map[string]func(name, policy string) error{
		"cpu_manager_state": func(name, policy string) error {
			s, err := cpus.NewCheckpointState(klog.Background(), dir, name, policy, containermap.NewContainerMap())
			if err == nil {
				s.SetDefaultCPUSet(s.GetDefaultCPUSet())
			}
			return err
		},
		"memory_manager_state": func(name, policy string) error {
			s, err := memory.NewCheckpointState(klog.Background(), dir, name, policy)
			if err == nil {
				s.SetMachineState(s.GetMachineState())
			}
			return err
		},
	}
	found := map[string]string{}
	for name, f := range rewrite {
		path := filepath.Join(dir, name)
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		var header struct {
			PolicyName string `json:"policyName"`
		}
		if err := json.Unmarshal(data, &header); err != nil {
			return nil, err
		}
		if err := f(name, header.PolicyName); err != nil {
			return nil, err
		}
		if data, err = os.ReadFile(path); err != nil {
			return nil, err
		}
		found[name] = string(data)
	}
	return found, nil
}
