package reviews

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kubeletkit/kubeletkit/internal/nodenet"
)

const (
	// defaultTokenTTL is kubelet's authentication.webhook.cacheTTL.
	defaultTokenTTL = 2 * time.Minute
	// invalidTTL is how long a token that the API server has refused stays invalid. It is short,
	// because a new token may be known to an API server late. Kubelet asks again at once.
	invalidTTL = 10 * time.Second
)

// TokensOptions are the options of [NewTokens].
type TokensOptions struct {
	// TTL is how long a token is valid without another review. Default 2 min, kubelet's
	// authentication.webhook.cacheTTL. Negative: each use is reviewed.
	TTL time.Duration
}

// Tokens authenticates clients by their bearer tokens. It is safe for concurrent use.
type Tokens struct {
	client kubernetes.Interface
	ttl    time.Duration
	cache  *cache[*authenticationv1.UserInfo] // nil: the token is not valid
}

// NewTokens returns an authenticator that has the API server of the client review tokens.
func NewTokens(client kubernetes.Interface, opts TokensOptions) *Tokens {
	if opts.TTL == 0 {
		opts.TTL = defaultTokenTTL
	}
	return &Tokens{client: client, ttl: opts.TTL, cache: newCache[*authenticationv1.UserInfo]()}
}

var errInvalidToken = errors.New("invalid bearer token")

// Authenticate returns the user of the token in the header Authorization, nil if there is none,
// and an error if it is not valid or could not be reviewed.
func (t *Tokens) Authenticate(req *http.Request) (*authenticationv1.UserInfo, error) {
	token := nodenet.BearerToken(req)
	if token == "" {
		return nil, nil
	}
	user, err := t.cache.get(req.Context(), t.cache.question([]byte(token)),
		func(ctx context.Context) (*authenticationv1.UserInfo, time.Duration, error) {
			return t.review(ctx, token)
		})
	if err != nil {
		return nil, fmt.Errorf("reviewing a bearer token: %w", err)
	}
	if user == nil {
		return nil, errInvalidToken
	}
	return user, nil
}

// review asks the API server.
func (t *Tokens) review(ctx context.Context, token string) (*authenticationv1.UserInfo, time.Duration, error) {
	review, err := t.client.AuthenticationV1().TokenReviews().Create(ctx,
		&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	if err != nil {
		return nil, 0, err
	}
	if !review.Status.Authenticated {
		return nil, min(invalidTTL, t.ttl), nil
	}
	return &review.Status.User, t.ttl, nil
}
