package events_test

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/cluster/events"
	"github.com/kubeletkit/kubeletkit/internal/apitest"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// A container cannot be started three times. The API server has one Event object.
func Example() {
	client := apitest.NewClientset() // of a kubeconfig: kubernetes.NewForConfig
	recorder, err := events.New(client, "edge-7", events.Options{})
	if err != nil {
		panic(err)
	}
	for range 3 {
		recorder.Event(runtime.Event{ // the agent calls this, as its Options.EveryEvent
			Pod:       runtime.PodRef{UID: "u", Namespace: "shop", Name: "web"},
			FieldPath: "spec.containers{main}", Type: "Warning", Reason: "BackOff",
			Message: "Back-off restarting failed container",
		})
	}
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	_ = recorder.Run(ctx)

	list, err := client.CoreV1().Events("shop").List(context.Background(), metav1.ListOptions{})
	if err != nil {
		panic(err)
	}
	for _, e := range list.Items {
		fmt.Println(e.InvolvedObject.Name, e.InvolvedObject.FieldPath, e.Reason, e.Count)
	}
	// Output: web spec.containers{main} BackOff 3
}
