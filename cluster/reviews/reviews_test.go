package reviews_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubeletkit/kubeletkit/cluster/reviews"
	"github.com/kubeletkit/kubeletkit/internal/apitest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// apiServer reviews tokens and accesses.
type apiServer struct {
	*apitest.Clientset
	calls atomic.Int64
}

// newAPIServer returns an API server that answers with review, a *TokenReview or a
// *SubjectAccessReview.
func newAPIServer(review func(object runtime.Object) error) *apiServer {
	s := &apiServer{Clientset: apitest.NewClientset()}
	s.PrependReactor("create", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		s.calls.Add(1)
		object := action.(clienttesting.CreateAction).GetObject().DeepCopyObject()
		err := review(object)
		return true, object, err
	})
	return s
}

func byToken(t *testing.T, token string) *http.Request {
	req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/pods", nil)
	req.Header.Set("Authorization", "Bearer "+token)
	return req
}

// A token is reviewed once in its time to live, and is valid until then though it is revoked.
func TestRevokedToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		revoked := false
		s := newAPIServer(func(object runtime.Object) error {
			review := object.(*authenticationv1.TokenReview)
			if !revoked && review.Spec.Token == "alice's" {
				review.Status = authenticationv1.TokenReviewStatus{Authenticated: true,
					User: authenticationv1.UserInfo{Username: "alice", Groups: []string{"a"}}}
			} else {
				review.Status.Error = "no such token"
			}
			return nil
		})
		tokens := reviews.NewTokens(s, reviews.TokensOptions{})
		for range 3 {
			user, err := tokens.Authenticate(byToken(t, "alice's"))
			require.NoError(t, err)
			assert.Equal(t, "alice", user.Username)
			time.Sleep(30 * time.Second)
		}
		assert.EqualValues(t, 1, s.calls.Load())
		revoked = true
		_, err := tokens.Authenticate(byToken(t, "alice's"))
		require.NoError(t, err, "90 s")
		time.Sleep(31 * time.Second)
		_, err = tokens.Authenticate(byToken(t, "alice's"))
		require.ErrorContains(t, err, "invalid bearer token")
		assert.EqualValues(t, 2, s.calls.Load())

		// A refusal is kept for 10 seconds.
		revoked = false
		_, err = tokens.Authenticate(byToken(t, "alice's"))
		require.Error(t, err)
		assert.EqualValues(t, 2, s.calls.Load())
		time.Sleep(10 * time.Second)
		_, err = tokens.Authenticate(byToken(t, "alice's"))
		require.NoError(t, err)
	})
}

// Package bearer has the tests of the header.
func TestHeaders(t *testing.T) {
	s := newAPIServer(func(object runtime.Object) error {
		review := object.(*authenticationv1.TokenReview)
		review.Status = authenticationv1.TokenReviewStatus{Authenticated: true,
			User: authenticationv1.UserInfo{Username: review.Spec.Token}}
		return nil
	})
	tokens := reviews.NewTokens(s, reviews.TokensOptions{})
	for header, want := range map[string]string{"Bearer a": "a", "bEARER a b": "a", "": "",
		"Bearer": "", "Basic a": ""} {
		req := byToken(t, "")
		req.Header.Set("Authorization", header)
		user, err := tokens.Authenticate(req)
		require.NoError(t, err, "%q", header)
		if want == "" {
			assert.Nil(t, user, "%q", header)
		} else if assert.NotNil(t, user, "%q", header) {
			assert.Equal(t, want, user.Username, "%q", header)
		}
	}
}

// What may pass is tried again, for a while; nothing of it is kept.
func TestAPIServerThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var failure error
		s := newAPIServer(func(object runtime.Object) error {
			object.(*authenticationv1.TokenReview).Status = authenticationv1.TokenReviewStatus{Authenticated: true,
				User: authenticationv1.UserInfo{Username: "alice"}}
			return failure
		})
		tokens := reviews.NewTokens(s, reviews.TokensOptions{TTL: time.Minute})
		failure = apierrors.NewInternalError(errors.New("etcd is away"))
		begin := time.Now()
		_, err := tokens.Authenticate(byToken(t, "x"))
		require.ErrorContains(t, err, "etcd is away")
		assert.EqualValues(t, 5, s.calls.Load())
		assert.LessOrEqual(t, time.Since(begin), 10*time.Second)

		failure = apierrors.NewForbidden(authenticationv1.Resource("tokenreviews"), "", errors.New("the node may not"))
		_, err = tokens.Authenticate(byToken(t, "x"))
		require.ErrorContains(t, err, "may not")
		assert.EqualValues(t, 6, s.calls.Load())

		failure = nil
		_, err = tokens.Authenticate(byToken(t, "x"))
		require.NoError(t, err)
	})
}

func TestAccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen authorizationv1.SubjectAccessReviewSpec
		allowed := true
		s := newAPIServer(func(object runtime.Object) error {
			review := object.(*authorizationv1.SubjectAccessReview)
			seen = review.Spec
			review.Status.Allowed = allowed && review.Spec.ResourceAttributes.Subresource == "log"
			return nil
		})
		access := reviews.NewAccess(s, reviews.AccessOptions{})
		alice := &authenticationv1.UserInfo{Username: "alice", UID: "1", Groups: []string{"a"},
			Extra: map[string]authenticationv1.ExtraValue{"k": {"v"}}}
		ask := func(subresource string) bool {
			ok, err := access.Authorize(t.Context(), alice, &authorizationv1.ResourceAttributes{Verb: "get",
				Version: "v1", Resource: "nodes", Subresource: subresource, Name: "n1"})
			require.NoError(t, err)
			return ok
		}
		assert.True(t, ask("log"))
		assert.Equal(t, authorizationv1.SubjectAccessReviewSpec{
			User: "alice", UID: "1", Groups: []string{"a"}, Extra: map[string]authorizationv1.ExtraValue{"k": {"v"}},
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "get", Version: "v1", Resource: "nodes",
				Subresource: "log", Name: "n1"},
		}, seen)
		assert.False(t, ask("proxy"))
		assert.EqualValues(t, 2, s.calls.Load())
		time.Sleep(29 * time.Second)
		assert.False(t, ask("proxy"))
		assert.EqualValues(t, 2, s.calls.Load())
		time.Sleep(time.Second)
		assert.False(t, ask("proxy"))
		assert.EqualValues(t, 3, s.calls.Load(), "30 s")
		allowed = false
		assert.True(t, ask("log"))
		time.Sleep(5 * time.Minute)
		assert.False(t, ask("log"), "5 min")
	})
}

// Callers of the same question share one request. It ends when the last of them leaves.
func TestSharedReviews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cancelled, answer := make(chan struct{}, 1), make(chan struct{})
		s := &blocking{cancelled: cancelled, answer: answer}
		client, err := kubernetes.NewForConfigAndClient(&rest.Config{Host: "http://api", QPS: -1},
			&http.Client{Transport: s})
		require.NoError(t, err)
		tokens := reviews.NewTokens(client, reviews.TokensOptions{})
		var callers sync.WaitGroup
		var valid atomic.Int64
		for range 20 {
			callers.Go(func() {
				if user, err := tokens.Authenticate(byToken(t, "x")); err == nil && user.Username == "alice" {
					valid.Add(1)
				}
			})
		}
		ctx, leave := context.WithCancel(t.Context())
		gone := make(chan error, 1)
		go func() {
			_, err := tokens.Authenticate(byToken(t, "x").WithContext(ctx))
			gone <- err
		}()
		synctest.Wait()
		leave()
		require.ErrorIs(t, <-gone, context.Canceled)
		close(answer)
		callers.Wait()
		assert.EqualValues(t, 20, valid.Load())
		assert.EqualValues(t, 1, s.calls.Load())

		s.answer = make(chan struct{}) // never
		ctx, leave = context.WithCancel(t.Context())
		go func() {
			_, err := tokens.Authenticate(byToken(t, "y").WithContext(ctx))
			gone <- err
		}()
		synctest.Wait()
		leave()
		require.ErrorIs(t, <-gone, context.Canceled)
		assert.Len(t, cancelled, 1, "the last caller returns when the call has")
		<-cancelled

		begin := time.Now()
		_, err = tokens.Authenticate(byToken(t, "y"))
		require.Error(t, err)
		assert.Equal(t, 10*time.Second, time.Since(begin), "an API server that never answers")
		<-cancelled
	})
}

// Many tokens that are not valid do not fill the memory.
func TestManyTokens(t *testing.T) {
	s := newAPIServer(func(runtime.Object) error { return nil })
	s.ReactionChain = s.ReactionChain[:1]
	tokens := reviews.NewTokens(s, reviews.TokensOptions{})
	for i := range 5000 {
		_, err := tokens.Authenticate(byToken(t, fmt.Sprint(i)))
		require.Error(t, err)
		s.ClearActions()
	}
	_, err := tokens.Authenticate(byToken(t, "4999"))
	require.Error(t, err)
	assert.EqualValues(t, 5000, s.calls.Load())
	_, err = tokens.Authenticate(byToken(t, "0"))
	require.Error(t, err)
	assert.EqualValues(t, 5001, s.calls.Load(), "it has given way")
}

// blocking is a transport to an API server that answers when answer is closed.
type blocking struct {
	calls             atomic.Int64
	answer, cancelled chan struct{}
}

func (b *blocking) RoundTrip(req *http.Request) (*http.Response, error) {
	b.calls.Add(1)
	select {
	case <-b.answer:
		return &http.Response{
			StatusCode: http.StatusCreated, Header: http.Header{"Content-Type": {"application/json"}}, Request: req,
			Body: io.NopCloser(
				strings.NewReader(
					`{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1","status":{"authenticated":true,"user":{"username":"alice"}}}`)),
		}, nil
	case <-req.Context().Done():
		b.cancelled <- struct{}{}
		return nil, req.Context().Err()
	}
}
