package staticuid_test

import (
	"context"
	"fmt"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/podconfig/staticuid"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

func ExampleUIDs() {
	// A kubelet has started a pod of a manifest without metadata.uid.
	rt := fake.New(fake.Options{})
	theirs := testpod.New("web-node", testpod.UID("a1b2"), testpod.Static, testpod.Containers("main"))
	if err := rt.Seed(theirs); err != nil {
		panic(err)
	}

	// The same manifest has another UID here. The pod runs on.
	ours := testpod.With(theirs, testpod.UID("c3d4"))
	uids := staticuid.New(rt, staticuid.Options{})
	fmt.Println(uids.UID(context.Background(), podconfig.StaticPod{Source: "file", Pod: ours, Manifest: "hash"}))
	// Output: a1b2
}
