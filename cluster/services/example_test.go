package services_test

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/cluster/services"
)

// The variables of one service.
func ExampleVariables() {
	kubernetes := &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kubernetes"},
		Spec: v1.ServiceSpec{ClusterIP: "10.96.0.1",
			Ports: []v1.ServicePort{{Name: "https", Port: 443, Protocol: v1.ProtocolTCP}}},
	}
	for _, v := range services.Variables(kubernetes) {
		fmt.Println(v.Name + "=" + v.Value)
	}
	// Output:
	// KUBERNETES_SERVICE_HOST=10.96.0.1
	// KUBERNETES_SERVICE_PORT=443
	// KUBERNETES_SERVICE_PORT_HTTPS=443
	// KUBERNETES_PORT=tcp://10.96.0.1:443
	// KUBERNETES_PORT_443_TCP=tcp://10.96.0.1:443
	// KUBERNETES_PORT_443_TCP_PROTO=tcp
	// KUBERNETES_PORT_443_TCP_PORT=443
	// KUBERNETES_PORT_443_TCP_ADDR=10.96.0.1
}
