package main

import (
	"fmt"
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/apis/core"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
)

// staticPod is what a kubelet makes of a manifest.
type staticPod struct {
	UID types.UID `json:"uid"`
	// Hashes are those of its containers, by name: io.kubernetes.container.hash.
	Hashes map[string]uint64 `json:"hashes"`
}

// uids prints the static pods of the manifests in DIR, of one pod each, by the names of the pods:
//
//	reference uids NODE DIR
func uids(args []string) (any, error) {
	if len(args) != 2 {
		return nil, fmt.Errorf("usage: reference uids NODE DIR")
	}
	node, dir := types.NodeName(args[0]), args[1]
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	found := map[string]staticPod{}
	for _, file := range files {
		path := filepath.Join(dir, file.Name()) // as the source of files has it
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		_, pod, err := tryDecodeSinglePod(klog.Background(), data, func(log klog.Logger, pod *core.Pod) error {
			return applyDefaults(log, pod, path, true, node)
		})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		found[pod.Name] = describe(pod)
	}
	return found, nil
}

func describe(pod *v1.Pod) staticPod {
	p := staticPod{UID: pod.UID, Hashes: map[string]uint64{}}
	for _, containers := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			p.Hashes[containers[i].Name] = kubecontainer.HashContainer(&containers[i])
		}
	}
	return p
}
