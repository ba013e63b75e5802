package podmanager_test

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/podconfig/podmanager"
)

// A static pod and the mirror pod that an API server has of it.
func Example() {
	pods := podmanager.New()
	pods.Set(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-edge-7", UID: "static"}})
	pods.Set(&v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: "web-edge-7", UID: "mirror",
		Annotations: map[string]string{v1.MirrorPodAnnotationKey: "static"},
	}})

	for _, pod := range pods.Pods() {
		fmt.Println(pod.Namespace+"/"+pod.Name, pod.UID)
	}
	fmt.Println("users mean", pods.TranslateUID("mirror"))

	static, _ := pods.ByUID("static")
	pods.Remove(static)
	fmt.Println("orphaned mirror pods:", len(pods.Snapshot().OrphanedMirrors))
	// Output:
	// default/web-edge-7 static
	// users mean static
	// orphaned mirror pods: 1
}
