package images_test

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/node/images"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// store is the image store of a runtime.
type store map[string]*runtime.Image

func (s store) Find(_ context.Context, name string) (*runtime.Image, error) { return s[name], nil }

func (s store) Pull(_ context.Context, name string, _ *runtime.ImageAuth) (string, error) {
	s[name] = &runtime.Image{ID: "sha256:1", Tags: []string{name}}
	return name, nil
}

func (s store) Removed(string) time.Time { return time.Time{} }

func Example() {
	puller, err := images.New(images.Options{
		MaxParallel: 3,
		Observer: runtime.Observer{NonBlocking: true,
			Event: func(e runtime.Event) { fmt.Println(e.FieldPath, e.Reason) }},
	})
	if err != nil {
		panic(err)
	}
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "nginx", Image: "nginx:1.29"}}},
	}
	// A runtime makes such a request when it starts a container.
	req := images.Request{Pod: pod, ImageRequest: runtime.ImageRequest{Image: "nginx:1.29", Container: "nginx",
		Store: store{}}}
	image, err := puller.Ensure(context.Background(), req)
	if err != nil {
		panic(err)
	}
	fmt.Println(image.ID)
	// Output:
	// spec.containers{nginx} Pulling
	// spec.containers{nginx} Pulled
	// sha256:1
}

// archives imports images from files in place of pulling them.
type archives struct {
	images.Base
	load func(ctx context.Context, image string) error
}

func (a archives) Ensure(ctx context.Context, req images.Request) (*runtime.Image, error) {
	image, err := req.Store.Find(ctx, req.Image)
	if image != nil || err != nil {
		return image, err
	}
	if err := a.load(ctx, req.Image); err != nil {
		return nil, &runtime.ImageError{Reason: runtime.ReasonImagePull, Message: err.Error(), RetryAfter: time.Minute,
			Err: err}
	}
	return req.Store.Find(ctx, req.Image)
}

// A manager of one's own, for kubeletkit.Options.Override.Images.
func ExampleManager() {
	have := store{}
	var manager images.Manager = archives{load: func(_ context.Context, image string) error {
		if image != "nginx:1.29" {
			return fmt.Errorf("no archive of %s", image)
		}
		have[image] = &runtime.Image{ID: "sha256:2"}
		return nil
	}}
	for _, name := range []string{"nginx:1.29", "redis:8"} {
		image, err := manager.Ensure(context.Background(),
			images.Request{ImageRequest: runtime.ImageRequest{Image: name, Store: have}})
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(image.ID)
	}
	// Output:
	// sha256:2
	// ErrImagePull: no archive of redis:8
}
