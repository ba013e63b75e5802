package crimeta_test

import (
	"fmt"
	"testing"

	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/runtime/internal/crimeta"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func Example() {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "1234"}}
	main := &v1.Container{Name: "main"}

	ref, _ := crimeta.RefFromLabels(crimeta.ContainerLabels(pod, main))
	annotations, _ := crimeta.ContainerAnnotations(pod, main, 3, nil)
	record, err := crimeta.ReadRecord(annotations)
	fmt.Println(ref, record.RestartCount, err)
	fmt.Println(crimeta.LogDirectory("/var/log/pods", ref) + "/" + crimeta.LogPath(main.Name, record.RestartCount))
	// Output:
	// default/web(1234) 3 <nil>
	// /var/log/pods/default_web_1234/main/3.log
}
