package main

import (
	"encoding/json"
	"fmt"
	"os"
	_ "unsafe" // for go:linkname

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/capabilities"
	_ "k8s.io/kubernetes/pkg/kubelet/config" // has the functions
)

// What kubelet's sources of files and URLs call with the bytes that they have read. The sources themselves have no end,
// and tell only a log what they refuse.

//go:linkname tryDecodeSinglePod k8s.io/kubernetes/pkg/kubelet/config.tryDecodeSinglePod
func tryDecodeSinglePod(log klog.Logger, data []byte,
	defaults func(klog.Logger, *core.Pod) error) (bool, *v1.Pod, error)

//go:linkname tryDecodePodList k8s.io/kubernetes/pkg/kubelet/config.tryDecodePodList
func tryDecodePodList(log klog.Logger, data []byte,
	defaults func(klog.Logger, *core.Pod) error) (bool, v1.PodList, error)

//go:linkname applyDefaults k8s.io/kubernetes/pkg/kubelet/config.applyDefaults
func applyDefaults(log klog.Logger, pod *core.Pod, source string, isFile bool, node types.NodeName) error

// manifest is what a source makes of a text: the pods, or an error.
type manifest struct {
	Pods  []v1.Pod `json:"pods,omitempty"`
	Error string   `json:"error,omitempty"`
}

// manifests reads a JSON list of the texts of manifests from the input, and prints the pods of each or an error. The
// arguments are file or url, the source that reads them, and the name of the node.
func manifests(args []string) (any, error) {
	if len(args) != 2 || args[0] != "file" && args[0] != "url" {
		return nil, fmt.Errorf("usage: reference manifests file|url NODE <TEXTS")
	}
	isFile, node, log := args[0] == "file", types.NodeName(args[1]), logr.Discard()
	var texts [][]byte
	if err := json.NewDecoder(os.Stdin).Decode(&texts); err != nil {
		return nil, err
	}
	capabilities.Initialize(capabilities.Capabilities{AllowPrivileged: true}) // as the kubelet does at its start
	defaults := func(log klog.Logger, pod *core.Pod) error { return applyDefaults(log, pod, "source", isFile, node) }
	all := make([]manifest, len(texts))
	for i, text := range texts {
		parsed, pod, err := tryDecodeSinglePod(log, text, defaults)
		switch {
		case err == nil:
			all[i].Pods = []v1.Pod{*pod}
			continue
		case !parsed && !isFile:
			var list v1.PodList
			if parsed, list, err = tryDecodePodList(log, text, defaults); parsed && err == nil {
				all[i].Pods = list.Items
				continue
			}
		}
		all[i].Error = err.Error()
	}
	return all, nil
}
