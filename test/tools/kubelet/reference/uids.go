package main

import (
	"context"
	"fmt"
	"os"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/config"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
	"k8s.io/kubernetes/pkg/kubelet/util"
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
	node, dir := args[0], args[1]
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	pods := config.NewPodConfig(record.NewFakeRecorder(1000), util.NewPodStartupLatencyTracker())
	config.NewSourceFile(klog.Background(), dir, types.NodeName(node), time.Hour,
		pods.Channel(ctx, kubetypes.FileSource))
	found := map[string]staticPod{}
	for len(found) < len(files) {
		select {
		case update := <-pods.Updates():
			for _, pod := range update.Pods {
				found[pod.Name] = describe(pod)
			}
		case <-ctx.Done():
			return nil, fmt.Errorf("%d manifests, %d pods: %v", len(files), len(found), found)
		}
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
