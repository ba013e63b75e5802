package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/checkpointmanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/containermap"
	cpus "k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/state"
	devices "k8s.io/kubernetes/pkg/kubelet/cm/devicemanager/checkpoint"
	dra "k8s.io/kubernetes/pkg/kubelet/cm/dra/state"
	memory "k8s.io/kubernetes/pkg/kubelet/cm/memorymanager/state"
)

// checkpoints restores the states of kubelet's managers of resources in DIR, has kubelet write them anew, and prints
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
	rewrite["kubelet_internal_checkpoint"] = func(name, _ string) error {
		manager, err := checkpointmanager.NewCheckpointManager(dir)
		if err != nil {
			return err
		}
		c := devices.New(nil, nil)
		if err := manager.GetCheckpoint(name, c); err != nil {
			return err
		}
		return manager.CreateCheckpoint(name, devices.New(c.GetData()))
	}
	rewrite["dra_manager_state"] = func(name, _ string) error {
		manager, err := dra.NewCheckpointer(dir, name)
		if err != nil {
			return err
		}
		c, err := manager.GetOrCreate()
		if err != nil {
			return err
		}
		claims, err := c.GetClaimInfoStateList()
		if err != nil {
			return err
		}
		if c, err = dra.NewCheckpoint(claims); err != nil {
			return err
		}
		return manager.Store(c)
	}
	found := map[string]string{}
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		name, path := file.Name(), filepath.Join(dir, file.Name())
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		if rewrite[name] == nil {
			return nil, fmt.Errorf("%s is no state of a manager", name)
		}
		var header struct {
			PolicyName string `json:"policyName"`
		}
		if err := json.Unmarshal(data, &header); err != nil {
			return nil, err
		}
		if err := rewrite[name](name, header.PolicyName); err != nil {
			return nil, err
		}
		if data, err = os.ReadFile(path); err != nil {
			return nil, err
		}
		found[name] = string(data)
	}
	return found, nil
}
