package podstatus_test

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/cluster/podstatus"
	"github.com/kubeletkit/kubeletkit/internal/apitest"
)

// known is what a podsource.Source is for the sink.
type known struct{ pod *v1.Pod }

func (k known) ByUID(uid types.UID) (*v1.Pod, bool)   { return k.pod, k.pod.UID == uid }
func (k known) ByName(_, name string) (*v1.Pod, bool) { return k.pod, k.pod.Name == name }
func (k known) Synced() bool                          { return true }

func Example() {
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "uid"},
		Spec:       v1.PodSpec{NodeName: "edge-7"},
		Status: v1.PodStatus{Phase: v1.PodPending, Conditions: []v1.PodCondition{
			{Type: "example.com/gate", Status: v1.ConditionTrue}, // of a controller
		}},
	}
	client := apitest.NewClientset(pod)
	sink, err := podstatus.New(client, known{pod}, podstatus.Options{
		NodeName: "edge-7",
		Ended:    func(types.UID) bool { return false },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	_, err = sink.Deliver(ctx, pod, v1.PodStatus{Phase: v1.PodRunning,
		Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, action := range client.Actions() {
		fmt.Println(action.GetVerb(), action.GetResource().Resource, action.GetSubresource())
	}
	got, _ := client.CoreV1().Pods("default").Get(ctx, "web", metav1.GetOptions{})
	fmt.Println(got.Status.Phase)
	for _, c := range got.Status.Conditions {
		fmt.Println(c.Type, c.Status)
	}
	// Output:
	// patch pods status
	// Running
	// example.com/gate True
	// Ready True
}
