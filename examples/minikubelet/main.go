// Minikubelet is the kubelet of package kubelet, and nothing else. It runs the pods whose manifests are in a directory
// on a CRI runtime, or without one as processes of the machine. Its flags and configuration file are kubelet's, so it
// can replace a kubelet. Build it with
//
//	go build ./examples/minikubelet
//
// With -tags grpcnotrace, as in a release, it is smaller by a quarter: gRPC leaves out request traces, which nothing
// here shows. The program of a release is metrics/tracing/minikubelet, which has a tracer for tracing of the
// configuration.
package main

import "github.com/kubeletkit/kubeletkit/kubelet"

func main() { kubelet.Main(kubelet.Options{Name: "minikubelet"}) }
