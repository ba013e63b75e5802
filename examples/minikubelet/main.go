// Minikubelet is the kubelet of package kubelet, and nothing else. It runs the pods whose manifests are in a directory
// on a CRI runtime, or without one as processes of the machine. Its flags and configuration file are kubelet's, so it
// can replace a kubelet. Build it with
//
//	go build -tags grpcnotrace ./examples/minikubelet
//
// The tag leaves out the request traces of gRPC, which nothing here shows; without it the program is larger by a fifth.
// The program of a release is metrics/tracing/minikubelet, which has a tracer for tracing of the configuration.
package main

import "github.com/kubeletkit/kubeletkit/kubelet"

func main() { kubelet.Main(kubelet.Options{Name: "minikubelet"}) }
