package crimetrics_test

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeletkit/kubeletkit/metrics/prometheus/crimetrics"
	"github.com/kubeletkit/kubeletkit/runtime/cri"
)

// The metrics are given to cri.Dial; here a call is reported by hand.
func Example() {
	reg := prometheus.NewRegistry()
	metrics, err := crimetrics.New(reg)
	if err != nil {
		fmt.Println(err)
		return
	}
	metrics.Measure(cri.Call{Method: "RunPodSandbox"}) // it is the Measure of cri.Options

	families, err := reg.Gather()
	for _, f := range families {
		if f.GetName() == "kubelet_runtime_operations_total" {
			fmt.Println(f.GetName(), f.GetMetric()[0].GetLabel()[0].GetValue(),
				f.GetMetric()[0].GetCounter().GetValue(), err)
		}
	}
	// Output: kubelet_runtime_operations_total run_podsandbox 1 <nil>
}
