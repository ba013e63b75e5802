package admission_test

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/node/admission"
)

func Example() {
	node := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "edge-7"},
		Spec:       v1.NodeSpec{Taints: []v1.Taint{{Key: "maintenance", Effect: v1.TaintEffectNoExecute}}},
	}
	admitter, err := admission.New(admission.Options{
		Node: func() admission.Node { return admission.Node{Node: node, Confirmed: true} },
	})
	if err != nil {
		panic(err)
	}
	_, err = admitter.Admit(lifecycle.AdmitRequest{Pod: &v1.Pod{}})
	fmt.Println(err)
	// Output: TaintToleration: Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate
}
