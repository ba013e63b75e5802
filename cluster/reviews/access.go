package reviews

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

const (
	defaultAuthorizedTTL   = 5 * time.Minute  // kubelet: authorization.webhook.cacheAuthorizedTTL
	defaultUnauthorizedTTL = 30 * time.Second // kubelet: authorization.webhook.cacheUnauthorizedTTL
)

// AccessOptions are the options of [NewAccess].
type AccessOptions struct {
	// AuthorizedTTL is how long something stays allowed without another review. Default 5 min,
	// kubelet's authorization.webhook.cacheAuthorizedTTL. Negative: each request is reviewed.
	AuthorizedTTL time.Duration
	// UnauthorizedTTL is how long something stays forbidden. Default 30 s, kubelet's
	// authorization.webhook.cacheUnauthorizedTTL. Negative: each request is reviewed.
	UnauthorizedTTL time.Duration
}

// Access authorizes users. It is safe for concurrent use.
type Access struct {
	client kubernetes.Interface
	opts   AccessOptions
	cache  *cache[bool]
}

// NewAccess returns an authorizer that asks the API server of the client.
func NewAccess(client kubernetes.Interface, opts AccessOptions) *Access {
	if opts.AuthorizedTTL == 0 {
		opts.AuthorizedTTL = defaultAuthorizedTTL
	}
	if opts.UnauthorizedTTL == 0 {
		opts.UnauthorizedTTL = defaultUnauthorizedTTL
	}
	return &Access{client: client, opts: opts, cache: newCache[bool]()}
}

// Authorize reports whether the user may do it. An error means that the API server could not be
// asked.
func (a *Access) Authorize(ctx context.Context, user *authenticationv1.UserInfo,
	what *authorizationv1.ResourceAttributes) (bool, error) {
	spec := authorizationv1.SubjectAccessReviewSpec{User: user.Username, UID: user.UID, Groups: user.Groups,
		ResourceAttributes: what}
	for key, values := range user.Extra {
		if spec.Extra == nil {
			spec.Extra = make(map[string]authorizationv1.ExtraValue, len(user.Extra))
		}
		spec.Extra[key] = authorizationv1.ExtraValue(values)
	}
	data, err := json.Marshal(spec)
	if err != nil {
		return false, err
	}
	allowed, err := a.cache.get(ctx, a.cache.question(data), func(ctx context.Context) (bool, time.Duration,
		error) {
		return a.review(ctx, spec)
	})
	if err != nil {
		return false, fmt.Errorf("reviewing the access of %s: %w", user.Username, err)
	}
	return allowed, nil
}

// review asks the API server.
func (a *Access) review(ctx context.Context,
	spec authorizationv1.SubjectAccessReviewSpec) (bool, time.Duration, error) {
	review, err := a.client.AuthorizationV1().SubjectAccessReviews().Create(ctx,
		&authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
	if err != nil {
		return false, 0, err
	}
	if review.Status.Allowed && !review.Status.Denied {
		return true, a.opts.AuthorizedTTL, nil
	}
	return false, a.opts.UnauthorizedTTL, nil
}
