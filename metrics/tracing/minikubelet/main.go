// Minikubelet is examples/minikubelet with a tracer: tracing of its configuration sends spans by OTLP, as that of a
// kubelet does. It is the program of a release, and of this module, since the main module does not link OpenTelemetry.
// Build it in the directory of the module, with
//
//	go build ./minikubelet
package main

import (
	"github.com/kubeletkit/kubeletkit/kubelet"
	"github.com/kubeletkit/kubeletkit/metrics/tracing/otlp"
)

func main() { kubelet.Main(kubelet.Options{Name: "minikubelet", Tracing: otlp.New}) }
