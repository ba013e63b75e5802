package runtimeclass_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubeletkit/kubeletkit/cluster/runtimeclass"
	"github.com/kubeletkit/kubeletkit/internal/apitest"
)

func class(name, handler string) *nodev1.RuntimeClass {
	return &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Handler: handler}
}

// A pod has the runtime class "sandboxed".
func Example() {
	classes, err := runtimeclass.New(apitest.NewClientset(class("sandboxed", "kata")), runtimeclass.Options{})
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- classes.Run(ctx) }() // the agent runs it
	fmt.Println(classes.Handler("sandboxed"))
	fmt.Println(classes.Handler("unknown"))
	cancel()
	<-done
	// Output:
	// kata <nil>
	//  runtimeclass.node.k8s.io "unknown" not found
}

func run(t *testing.T, client *apitest.Clientset, test func(t *testing.T, c *runtimeclass.Classes,
	appeared func() []string)) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var names []string
		c, err := runtimeclass.New(client, runtimeclass.Options{Appeared: func(class string) {
			mu.Lock()
			defer mu.Unlock()
			names = append(names, class)
		}})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- c.Run(ctx) }()
		test(t, c, func() []string {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			return names
		})
		cancel()
		require.NoError(t, <-done)
	})
}

func TestHandler(t *testing.T) {
	t.Parallel()
	client := apitest.NewClientset(class("a", "runc"))
	run(t, client, func(t *testing.T, c *runtimeclass.Classes, appeared func() []string) {
		synctest.Wait()
		assert.Empty(t, client.Actions(), "no pod has a class")
		handler, err := c.Handler("")
		require.NoError(t, err)
		assert.Empty(t, handler)
		handler, err = c.Handler("a")
		require.NoError(t, err)
		assert.Equal(t, "runc", handler)
		_, err = c.Handler("b")
		assert.True(t, apierrors.IsNotFound(err))
		assert.EqualError(t, err, `runtimeclass.node.k8s.io "b" not found`)
		assert.Empty(t, appeared())
		_, err = client.NodeV1().RuntimeClasses().Create(t.Context(), class("b", "kata"), metav1.CreateOptions{})
		require.NoError(t, err)
		assert.Equal(t, []string{"b"}, appeared())
		handler, err = c.Handler("b")
		require.NoError(t, err)
		assert.Equal(t, "kata", handler)
	})
}

func TestServerAway(t *testing.T) {
	t.Parallel()
	client := apitest.NewClientset(class("a", "runc"))
	var mu sync.Mutex
	away := true
	client.PrependReactor("list", "*", func(clienttesting.Action) (bool, kruntime.Object, error) {
		mu.Lock()
		defer mu.Unlock()
		return away, nil, errors.New("connection refused")
	})
	run(t, client, func(t *testing.T, c *runtimeclass.Classes, appeared func() []string) {
		_, err := c.Handler("a")
		require.ErrorIs(t, err, runtimeclass.ErrNotRead)
		assert.False(t, apierrors.IsNotFound(err))
		mu.Lock()
		away = false
		mu.Unlock()
		time.Sleep(10 * time.Second)
		assert.Equal(t, []string{"a"}, appeared())
	})
}
