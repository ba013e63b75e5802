package tokens_test

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubeletkit/kubeletkit/cluster/tokens"
	"github.com/kubeletkit/kubeletkit/internal/apitest"
)

// The token of a pod is requested once.
func Example() {
	client := apitest.NewClientset()
	client.PrependReactor("create", "serviceaccounts", func(a clienttesting.Action) (bool, kruntime.Object, error) {
		request := a.(clienttesting.CreateActionImpl).GetObject().(*authenticationv1.TokenRequest).DeepCopy()
		fmt.Println("the API server makes a token")
		request.Status.Token = "eyJ…"
		return true, request, nil
	})
	source, err := tokens.New(client, tokens.Options{})
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- source.Run(ctx) }() // the agent runs it

	lifetime := int64(3607)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: &lifetime,
		BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: "web", UID: "u"},
	}}
	for range 2 {
		token, err := source.Token(ctx, "shop", "default", request)
		fmt.Println(token.Status.Token, err)
	}
	cancel()
	<-done
	// Output:
	// the API server makes a token
	// eyJ… <nil>
	// eyJ… <nil>
}
