package users_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/node/users"
)

func Example() {
	podsDir, err := os.MkdirTemp("", "pods")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(podsDir) }()
	manager, err := users.New(podsDir, users.Options{InUse: func() ([]users.Range, error) { return nil, nil }})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	for _, uid := range []types.UID{"a", "b"} {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}, Spec: v1.PodSpec{HostUsers: new(false)}}
		dir := filepath.Join(podsDir, string(uid))
		if err := os.Mkdir(dir, 0o700); err != nil {
			fmt.Println(err)
			return
		}
		// The agent calls these.
		if _, err := manager.Prepare(ctx, lifecycle.PrepareRequest{Pod: pod, Dir: dir}); err != nil {
			fmt.Println(err)
			return
		}
		edits, err := manager.EditSandbox(ctx, pod)
		if err != nil {
			fmt.Println(err)
			return
		}
		for _, m := range edits.UserNamespace.UIDs {
			fmt.Printf("pod %s: user %d in containers is user %d of the host, and %d more\n", uid, m.ContainerID,
				m.HostID, m.Length-1)
		}
	}
	// Output:
	// pod a: user 0 in containers is user 65536 of the host, and 65535 more
	// pod b: user 0 in containers is user 131072 of the host, and 65535 more
}
